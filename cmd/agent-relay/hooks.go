package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/broker/hooks"
	"github.com/agent-relay/agent-relay/broker/socket"
	"github.com/agent-relay/agent-relay/client"
	"github.com/agent-relay/agent-relay/internal/hook"
)

func (a *app) hooksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hooks",
		Short: "See, fire and try the scripts in hooks.d",
		Long: `Hooks are executables in hooks.d/KIND, where KIND is pre-message, post-message,
cost-alert or update-applied. They run one after the other, in lexical order,
with a JSON object on standard input. The broker fires the first two when a
message comes in and when it is handed over; any program fires any of them
through the hook socket.`,
		Example: `  agent-relay hooks list
  agent-relay hooks test pre-message`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("say what to do: %s", strings.Join(commandNames(cmd), ", "))
		},
	}
	cmd.AddCommand(a.hooksListCommand(), a.hooksFireCommand(), a.hooksTestCommand(), a.hooksServeCommand())
	return cmd
}

func commandNames(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return names
}

// hooksConfigOf is the config that hooks go by; without a file, the defaults.
func (a *app) hooksConfigOf(flag string) (*config, error) {
	path, err := configPath(flag, a.env)
	if err != nil {
		return nil, err
	}
	c, err := loadConfig(path, a.env)
	if named := flag != "" || a.env("AGENT_RELAY_CONFIG") != ""; !named && errors.Is(err, fs.ErrNotExist) {
		c = defaultConfig()
		c.file = path
		home, err := dataHome(a.env)
		if err != nil {
			return nil, err
		}
		c.DataDir = dataDir(home)
		return c, nil
	}
	return c, err
}

// kindArgument takes a kind of hook, and completes it.
func kindArgument(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := arguments(cobra.ExactArgs(1))(cmd, args); err != nil {
			return err
		}
		if err := hook.Kind(args[0]).Err(); err != nil {
			return usagef("%w", err)
		}
		return nil
	}
	var words []string
	for _, k := range hook.Kinds() {
		words = append(words, string(k))
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// payloadFlag is a payload from the command line, or from stdin.
type payloadFlag struct{ text string }

func (p *payloadFlag) add(cmd *cobra.Command, missing string) {
	cmd.Flags().StringVar(&p.text, "payload", "", "the payload, a `JSON` object; - reads it from stdin (default "+missing+")")
}

// maxPayloadBytes is what fits a line of the hook socket.
const maxPayloadBytes = 1 << 20

// payload is nil if none was given.
func (a *app) payload(cmd *cobra.Command, p payloadFlag) (json.RawMessage, error) {
	if !cmd.Flags().Changed("payload") {
		return nil, nil
	}
	data := []byte(p.text)
	if p.text == "-" {
		var err error
		if data, err = a.input(cmd.Context(), maxPayloadBytes); err != nil {
			return nil, err
		}
	}
	if !json.Valid(data) {
		return nil, &exitError{exitBadData, errors.New("the payload is not one JSON value; give an object, such as {}")}
	}
	return data, nil
}

func (a *app) hooksListCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is installed, and what is passed over or refused and why",
		Long: `Prints a line for each file in hooks.d: its kind, its name, whether it runs, and
why not. It looks at the files itself; no broker is needed.`,
		Example: "  agent-relay hooks list",
		Args:    arguments(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&config, "config", "", configFlagHelp)
	addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.hooksConfigOf(config)
		if err != nil {
			return err
		}
		dispatcher, err := c.newHooks(a, hooks.Options{})
		if err != nil {
			return err
		}
		d := a.display(cmd, false)
		return errors.Join(a.listHooks(d, dispatcher.List()), d.flush())
	}
	return cmd
}

func (a *app) listHooks(d *display, l hooks.Listing) error {
	if d.json {
		return d.document(newListingDocument(l))
	}
	var rows [][]string
	for _, k := range l.Kinds {
		if k.Problem != "" {
			rows = append(rows, []string{string(k.Kind), "-", "refused", k.Problem})
		}
		for _, s := range k.Scripts {
			rows = append(rows, []string{string(k.Kind), s.Name, string(s.Status), s.Why})
		}
	}
	for _, name := range l.Unknown {
		rows = append(rows, []string{"-", name, "unknown", "no kind of hook has this name"})
	}
	if len(rows) == 0 {
		a.note("nothing is installed in %s", l.Dir)
		return nil
	}
	return d.table([]string{"KIND", "SCRIPT", "STATUS", "WHY"}, rows)
}

// listingDocument is a listing as JSON.
type listingDocument struct {
	Dir     string         `json:"dir"`
	Kinds   []kindDocument `json:"kinds"`
	Unknown []string       `json:"unknown"`
}

type kindDocument struct {
	Kind    hook.Kind        `json:"kind"`
	Problem string           `json:"problem,omitempty"`
	Scripts []scriptDocument `json:"scripts"`
}

type scriptDocument struct {
	Name   string       `json:"name"`
	Status hooks.Status `json:"status"`
	Why    string       `json:"why,omitempty"`
}

func newListingDocument(l hooks.Listing) listingDocument {
	document := listingDocument{Dir: l.Dir, Unknown: append([]string{}, l.Unknown...)}
	for _, k := range l.Kinds {
		scripts := []scriptDocument{}
		for _, s := range k.Scripts {
			scripts = append(scripts, scriptDocument{s.Name, s.Status, s.Why})
		}
		document.Kinds = append(document.Kinds, kindDocument{k.Kind, k.Problem, scripts})
	}
	return document
}

func (a *app) hooksFireCommand() *cobra.Command {
	var config, path string
	var payload payloadFlag
	cmd := &cobra.Command{
		Use:   "fire KIND",
		Short: "Fire an event through the hook socket",
		Long: `Has the broker, or "agent-relay hooks serve", run the scripts of a kind, and
prints its answer: {"ok":true,"errors":[]}, or what failed. The exit status is 0
if all went well, also with nothing installed, and 1 if something failed.`,
		Example: `  agent-relay hooks fire cost-alert --payload '{"threshold_usd":10,"spent_usd":12,"window":"daily"}'`,
	}
	kindArgument(cmd)
	cmd.Flags().StringVar(&config, "config", "", configFlagHelp)
	cmd.Flags().StringVar(&path, "socket", "", "the hook socket (default that of the config, or the user's own)")
	payload.add(cmd, "{}")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		data, err := a.payload(cmd, payload)
		if err != nil {
			return err
		}
		if path == "" {
			if path, err = a.defaultHookSocket(config); err != nil {
				return err
			}
		}
		result, err := client.FireHook(cmd.Context(), path, hook.Kind(args[0]), data)
		if err != nil {
			return err
		}
		if _, err := a.stdout.Write(append(result.AppendJSON(nil, 1<<30), '\n')); err != nil {
			return err
		}
		return failedHooks(result)
	}
	return cmd
}

// failedHooks ends a command whose hooks failed, which it has shown.
func failedHooks(r hook.Result) error {
	if r.OK {
		return nil
	}
	return &exitError{status: exitFailure}
}

func (a *app) defaultHookSocket(flag string) (string, error) {
	c, err := a.hooksConfigOf(flag)
	if err != nil {
		return "", err
	}
	path, err := c.hookSocket(a.env, c.DataDir)
	if err == nil && path == "" {
		err = usagef("the hook socket is off (hooks.socket in %s); name another one with --socket", c.file)
	}
	return path, err
}

func (a *app) hooksTestCommand() *cobra.Command {
	var config string
	var payload payloadFlag
	cmd := &cobra.Command{
		Use:   "test KIND",
		Short: "Run a kind's scripts with a sample payload",
		Long: `Runs the scripts of a kind here, without a broker, with a made-up payload of
that kind, and prints a line for each: how long it took, how it ended, and the
end of what it wrote to standard error. The exit status is 1 if something
failed.`,
		Example: "  agent-relay hooks test pre-message",
	}
	kindArgument(cmd)
	cmd.Flags().StringVar(&config, "config", "", configFlagHelp)
	payload.add(cmd, "a sample")
	addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind := hook.Kind(args[0])
		data, err := a.payload(cmd, payload)
		if err != nil {
			return err
		}
		if data == nil {
			data = hook.Sample(kind, time.Now())
		}
		c, err := a.hooksConfigOf(config)
		if err != nil {
			return err
		}
		dispatcher, err := c.newHooks(a, hooks.Options{})
		if err != nil {
			return err
		}
		result := dispatcher.Fire(cmd.Context(), kind, data)
		d := a.display(cmd, false)
		return errors.Join(a.showRuns(d, dispatcher.List().Dir, kind, result), d.flush(), failedHooks(result))
	}
	return cmd
}

// runDocument is a script's run as JSON.
type runDocument struct {
	Script     string  `json:"script"`
	OK         bool    `json:"ok"`
	Code       int     `json:"code"`
	Seconds    float64 `json:"seconds"`
	StderrTail string  `json:"stderr_tail,omitempty"`
	Reason     string  `json:"reason,omitempty"`
}

func (a *app) showRuns(d *display, dir string, kind hook.Kind, r hook.Result) error {
	runs := r.Runs
	if len(runs) == 0 {
		for _, f := range r.Errors {
			runs = append(runs, hook.Run{Script: f.Script, Code: f.Code, Reason: f.Reason})
		}
	}
	if d.json {
		documents := []runDocument{}
		for _, run := range runs {
			_, failed := run.Failure()
			documents = append(documents, runDocument{run.Script, !failed, run.Code, run.Took.Seconds(), run.StderrTail, run.Reason})
		}
		return d.document(map[string]any{"ok": r.OK, "scripts": documents})
	}
	if len(runs) == 0 {
		a.note("nothing is installed in %s for %s", dir, kind)
		return nil
	}
	rows := make([][]string, len(runs))
	for i, run := range runs {
		rows[i] = []string{run.Script, run.Took.Round(100 * time.Microsecond).String(), ending(run), run.StderrTail}
	}
	return d.table([]string{"SCRIPT", "TIME", "STATUS", "STDERR"}, rows)
}

// ending is how a run ended.
func ending(r hook.Run) string {
	switch {
	case r.Reason != "":
		return r.Reason
	case r.Code < 0:
		return "killed"
	case r.Code > 0:
		return "exit " + strconv.Itoa(r.Code)
	}
	return "ok"
}

func (a *app) hooksServeCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve [SOCKET]",
		Short: "Serve the hook socket alone, without a broker",
		Long: `Runs hooks for whoever fires them at the socket, until interrupted. The broker
("agent-relay serve") does this by itself.`,
		Example: "  agent-relay hooks serve /run/user/1000/hooks.sock",
		Args:    arguments(cobra.MaximumNArgs(1)),
	}
	flags.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.log.check(); err != nil {
			return err
		}
		path := firstOf(args...)
		if path == "" {
			var err error
			if path, err = a.defaultHookSocket(flags.config); err != nil {
				return err
			}
		}
		return a.serveHooks(cmd.Context(), flags, path)
	}
	return cmd
}

func (a *app) serveHooks(ctx context.Context, flags serveFlags, path string) error {
	c, err := a.hooksConfigOf(flags.config)
	if err != nil {
		return err
	}
	log := newLogger(a.stderr, flags.log)
	dispatcher, err := c.newHooks(a, hooks.Options{Log: log})
	if err != nil {
		return err
	}
	server, err := socket.Listen(socket.Options{Path: path, Name: "hook", Serve: socket.HookHandler(dispatcher), Log: log})
	if err != nil {
		return fmt.Errorf("the hook socket: %w", err)
	}
	scripts := begin(ctx, func() {}, dispatcher.Run)
	log.Info("listening", "socket", server.Path(), "hooks", dispatcher.List().Dir)
	err = server.Run(ctx)
	return errors.Join(err, scripts.end())
}
