package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// clientFlags are what every command has that calls the broker. There is no
// flag for the secret: other users can read a command line.
type clientFlags struct {
	agent, url, config, caFile string
	allowUnsigned              bool
}

// maxSecretBytes is the largest secret file that is read.
const maxSecretBytes = 64 << 10

const connectionHelp = `

The secret is read from the file named by AGENT_RELAY_SECRET_FILE, else from
AGENT_RELAY_SECRET, else from the agent's credentials ("agent add
--credentials"), else from the config of the broker on this machine.`

func addClientFlags(cmd *cobra.Command) *clientFlags {
	f := &clientFlags{}
	cmd.Flags().StringVar(&f.agent, "agent", "", "call as this agent (default $AGENT_RELAY_AGENT)")
	cmd.Flags().StringVar(&f.url, "url", "", "the broker's address (default $AGENT_RELAY_URL, else that of the config, else "+client.DefaultURL+")")
	cmd.Flags().StringVar(&f.caFile, "ca-file", "", "trust the certificates in this file (default $AGENT_RELAY_CA_FILE, else that of the config, else the system's)")
	cmd.Flags().StringVar(&f.config, "config", "", "the broker's config file (default $AGENT_RELAY_CONFIG, else the user's own)")
	cmd.Flags().BoolVar(&f.allowUnsigned, "allow-unsigned", false, "trust answers that are not signed, as those of older brokers")
	addJSONFlag(cmd)
	return f
}

// action is what a command does with its arguments and a client, and where it
// shows what came of it.
type action func(ctx context.Context, args []string, c *client.Client, d *display) error

// calling makes what cobra runs of an action, whose broker was seen to answer.
// messages says that the command prints messages.
func (a *app) calling(f *clientFlags, messages bool, act action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.newClient(f)
		if err != nil {
			return err
		}
		defer c.Close()
		// Nothing is sent to whoever else may listen on the port.
		if _, err := c.Handshake(cmd.Context()); err != nil {
			return err
		}
		d := a.display(cmd, messages)
		return errors.Join(act(cmd.Context(), args, c, d), d.flush())
	}
}

func (a *app) newClient(f *clientFlags) (*client.Client, error) {
	o := client.Options{
		URL:       firstOf(f.url, a.env("AGENT_RELAY_URL")),
		Agent:     firstOf(f.agent, a.env("AGENT_RELAY_AGENT")),
		UserAgent: "agent-relay/" + a.version,
		CAFile:    firstOf(f.caFile, a.env("AGENT_RELAY_CA_FILE")),

		AllowUnsigned: f.allowUnsigned,
	}
	if o.Agent == "" {
		return nil, usagef("which agent is calling? name it with --agent or AGENT_RELAY_AGENT")
	}
	var err error
	if o.Secret, err = a.secret(); err != nil {
		return nil, err
	}
	if o.Secret == "" {
		if err := a.fromCredentials(&o); err != nil {
			return nil, err
		}
	}
	if o.Secret == "" || o.URL == "" {
		if err := a.fromConfig(f.config, &o); err != nil {
			return nil, err
		}
	}
	o.Pauses = client.NoRetries
	c, err := client.New(o)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return c, nil
}

// secret is that of the environment, or empty.
func (a *app) secret() (string, error) {
	path := a.env("AGENT_RELAY_SECRET_FILE")
	if path == "" {
		return a.env("AGENT_RELAY_SECRET"), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the secret (AGENT_RELAY_SECRET_FILE): %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return "", fmt.Errorf("read the secret (AGENT_RELAY_SECRET_FILE): %w", err)
	}
	if len(text) > maxSecretBytes {
		return "", fmt.Errorf("%s is over %d bytes; AGENT_RELAY_SECRET_FILE must name a file that holds the secret and nothing else", path, maxSecretBytes)
	}
	secret := trimNewline(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty; AGENT_RELAY_SECRET_FILE must name a file that holds the secret", path)
	}
	return secret, nil
}

// fromCredentials fills in the key of an agent that has one of its own, as
// "agent add --credentials" wrote it for this user, and the URL if it is
// missing.
func (a *app) fromCredentials(o *client.Options) error {
	home, err := configHome(a.env)
	if err != nil || !agentrelay.ValidName(o.Agent) {
		return nil // the name is refused later
	}
	c, err := client.ReadCredentials(client.CredentialsFile(home, o.Agent))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case c.Agent != o.Agent:
		return fmt.Errorf("%s holds the credentials of %s", client.CredentialsFile(home, o.Agent), c.Agent)
	}
	o.Secret, o.URL = c.Key, firstOf(o.URL, c.URL)
	return nil
}

// fromConfig fills in the secret and the URL from the local config where they
// are missing. Without a config, a missing URL keeps its default.
func (a *app) fromConfig(flag string, o *client.Options) error {
	path, err := configPath(flag, a.env)
	var c *config
	if err == nil {
		c, err = loadConfig(path, a.env)
	}
	named := flag != "" || a.env("AGENT_RELAY_CONFIG") != ""
	absent := !named && (path == "" || errors.Is(err, fs.ErrNotExist))
	switch {
	case absent && o.Secret == "":
		return usagef("no secret: put it into a file and name that in AGENT_RELAY_SECRET_FILE, or set AGENT_RELAY_SECRET, or make a config on this machine with `agent-relay setup init`")
	case absent:
		return nil
	case err != nil:
		return err
	}
	if o.Secret == "" {
		o.Secret = string(c.Secret)
	}
	if o.URL == "" {
		o.URL, o.CAFile = c.baseURL(), firstOf(o.CAFile, c.CAFile)
		if u, err := url.Parse(o.URL); err == nil && u.Port() == "0" {
			return usagef("%s leaves the broker's port open (%s); name its address with --url or AGENT_RELAY_URL", path, c.Listen)
		}
	}
	return nil
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// trimNewline cuts one newline off the end, as editors and echo put it there.
func trimNewline(s string) string {
	if rest, ok := strings.CutSuffix(s, "\n"); ok {
		return strings.TrimSuffix(rest, "\r")
	}
	return s
}
