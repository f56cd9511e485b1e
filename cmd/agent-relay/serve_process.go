package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/bridge"
	"github.com/agent-relay/agent-relay/broker/hooks"
	"github.com/agent-relay/agent-relay/broker/httpapi"
	"github.com/agent-relay/agent-relay/broker/socket"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

const (
	endTimeout   = 10 * time.Second
	drainTimeout = 7 * time.Second

	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	// maxHeaderBytes is far more than a request of the protocol has.
	maxHeaderBytes = 16 << 10
)

// process is a broker with everything it stands on and everything that stands
// on it.
type process struct {
	app      *app
	log      *slog.Logger
	listener net.Listener
	store    store.Store
	broker   *broker.Broker
	// hookSocket is nil if there is none.
	hooks      *hooks.Dispatcher
	boundaries *broker.Boundaries
	hookSocket *socket.Server
	bridge     *bridge.Bridge
	// control and controlSocket are nil if there is none.
	control       *socket.Control
	controlSocket *socket.Server
	http          *http.Server
	// config is the one it was opened with; reloading is held while another
	// is put in force.
	config    *config
	reloading sync.Mutex
	// hangUps has the signal SIGHUP, from before anybody can know the process.
	hangUps chan os.Signal
	// terminal says that it was started on one.
	terminal bool
	// temporary is a data directory to remove at the end, if any.
	temporary string
	// endTimeout bounds a clean end, drainTimeout the part of it in which
	// requests under way are answered.
	endTimeout, drainTimeout time.Duration
}

// openProcess opens what c asks for. On an error nothing stays open.
func (a *app) openProcess(ctx context.Context, c *config, log *slog.Logger) (*process, error) {
	p := &process{app: a, log: log, config: c, terminal: onTerminal(a), endTimeout: endTimeout, drainTimeout: drainTimeout}
	p.hangUps = make(chan os.Signal, 1)
	signal.Notify(p.hangUps, syscall.SIGHUP)
	if err := p.open(ctx, a, c); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.warn(c)
	return p, nil
}

// warn points out what is allowed and yet may surprise.
func (p *process) warn(c *config) {
	if isLoopback(p.listener.Addr()) {
		return
	}
	if len(c.PublicHosts) == 0 {
		p.log.Warn("requests from other machines will be refused; add the names and addresses they call to public_hosts")
	}
}

func (p *process) open(ctx context.Context, a *app, c *config) (err error) {
	if p.listener, err = listen(ctx, c); err != nil {
		return err
	}
	if err := c.checkExposure(p.listener.Addr()); err != nil {
		return err
	}
	secured, err := c.secure(p.listener, p.log)
	if err != nil {
		return err
	}
	p.listener = secured
	dir := c.DataDir
	if c.Storage == storageMemory {
		if dir, err = os.MkdirTemp("", "agent-relay-*"); err != nil {
			return fmt.Errorf("make a temporary directory: %w; set TMPDIR to one that can be written", err)
		}
		p.temporary = dir
	}
	if p.hooks, err = c.newHooks(a, hooks.Options{Log: p.log, Done: p.hookDone}); err != nil {
		return err
	}
	p.boundaries = broker.NewBoundaries(p.hooks, c.Hooks.PreMessage == hooksEnforce)
	connectors, err := c.bridged()
	if err != nil {
		return err
	}
	p.boundaries.Channels(bridge.Channel(connectors))
	told := p.newObservers(c, a.version)
	opened, err := sqlite.Open(ctx, sqlite.Options{Dir: dir, Options: store.Options{
		TTL: c.MessageTTL, MaxAttempts: c.MaxAttempts, MaxQueued: c.MaxQueued, MaxQueuedBytes: c.MaxQueuedBytes, Observe: told.hub.Observe, Committed: told.committed, Damaged: told.damaged,
	}})
	if err != nil {
		return fmt.Errorf("%w (data_dir in %s)", err, c.file)
	}
	p.store = opened
	if opened.Recovered() {
		broker.Audit(p.log).Warn("the broker had not ended well; what was accepted is kept, and the store is being checked", "data_dir", dir)
	}
	if err := p.openHookSocket(a, c, dir); err != nil {
		return err
	}
	p.broker, err = broker.Open(ctx, broker.Options{
		Store: p.store, Hub: told.hub, Damage: told.damage, Boundaries: p.boundaries, Secret: string(c.Secret), RequireAgentKeys: c.RequireAgentKeys,
		Reserved:         bridge.Names(connectors),
		RequireSingleUse: c.RequireSingleUse, AllowedTargets: c.allowedTargets(),
		Heartbeat: c.Heartbeat, TTL: c.MessageTTL,
		Lockout: broker.Lockout{Failures: c.Lockout.Failures, Duration: c.Lockout.Duration},
		Log:     p.log, Observer: told.broker,
	})
	if err != nil {
		return err
	}
	if err := p.openBridge(ctx, c, connectors); err != nil {
		return err
	}
	if err := p.openControlSocket(a, c, dir); err != nil {
		return err
	}
	connections := httpapi.NewConnections(min(c.MaxConnections, descriptorsLeft()))
	p.http = &http.Server{
		Handler: httpapi.New(httpapi.Options{
			Broker: p.broker, Version: a.version, Storage: c.Storage, Log: p.log,
			PublicHosts: c.PublicHosts, TrustedProxies: c.TrustedProxies,
			PublicPrefix: c.PublicPrefix, ProxiesOnly: c.BehindProxy,
			MaxBodyBytes: c.MaxBodyBytes, Lease: c.Lease,
			PerAgent: c.RateLimit.PerAgent, PerAddress: c.RateLimit.PerAddress,
			Observer: told.http, Metrics: told.metrics, Deliver: p.deliver(connectors),
		}),
		// OPTIONS * is no route of the protocol either.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ConnState:                    connections.State,
		ConnContext:                  connections.Context,
		ErrorLog:                     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	p.log.Info("listening", "addr", p.listener.Addr().String(), "version", a.version,
		"config", c.file, "storage", c.Storage, "data_dir", dir)
	return nil
}

func listen(ctx context.Context, c *config) (net.Listener, error) {
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use, perhaps by another broker; stop what listens there, or set another listen in %s", c.Listen, c.file)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; set another listen in %s", err, c.file)
	}
	return listener, nil
}

// allowedTargets is the routing ACL: an entry for each agent that has one.
func (c *config) allowedTargets() map[string][]string {
	acl := map[string][]string{}
	for name, agent := range c.Agents {
		if agent.AllowedTargets != nil {
			acl[name] = agent.AllowedTargets
		}
	}
	return acl
}

// part is something of a process that runs until it is ended.
type part struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

// begin runs a part whatever becomes of ctx. failed is called when it fails.
func begin(ctx context.Context, failed func(), run func(context.Context) error) *part {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	running := &part{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(running.ended)
		if running.err = run(ctx); running.err != nil {
			failed()
		}
	}()
	return running
}

// end ends a part, and waits for it.
func (r *part) end() error {
	r.cancel()
	<-r.ended
	return r.err
}

// run serves until ctx ends, which is no error, or a part fails. It then ends
// everything in order: who asks, what answers, the hooks, the rules, the store.
func (p *process) run(ctx context.Context) error {
	failed := make(chan struct{})
	fail := sync.OnceFunc(func() { close(failed) })
	rules := begin(ctx, fail, p.broker.Run)
	scripts := begin(ctx, fail, p.hooks.Run)
	sockets := begin(ctx, fail, p.serveSockets)
	chats := begin(ctx, fail, p.bridge.Run)
	control := begin(ctx, fail, p.serveControl)
	answers := begin(ctx, fail, p.serveHTTP)
	p.notify(daemon.SdNotifyReady)
	p.await(ctx, failed)
	again := make(chan os.Signal, 1)
	if p.temporary != "" {
		// Otherwise another signal is not caught, and ends the process.
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
	}
	p.log.Info("draining")
	p.notify(daemon.SdNotifyStopping)
	return p.end(again, func() error {
		chats.cancel() // it takes a while until all have agreed
		p.broker.Drain()
		return errors.Join(control.end(), sockets.end(), answers.end(), chats.end(), scripts.end(), rules.end(), p.close())
	})
}

// await returns when p is to end.
func (p *process) await(ctx context.Context, failed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-failed:
			return
		case <-p.hangUps:
			if p.hangUp() {
				return
			}
		}
	}
}

// serveHTTP serves until ctx ends, and then lets requests under way be
// answered; those that take too long are cut off.
func (p *process) serveHTTP(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- p.http.Serve(p.listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.drainTimeout)
	defer cancel()
	if err := p.http.Shutdown(bounded); err != nil {
		p.log.Warn("cut off requests that were not complete", "error", err)
		_ = p.http.Close()
	}
	<-served
	return nil
}

// serveSockets serves the sockets that there are.
func (p *process) serveSockets(ctx context.Context) error {
	if p.hookSocket == nil {
		return nil
	}
	err := p.hookSocket.Run(ctx)
	p.hookSocket = nil // it is closed
	return err
}

// end calls shutdown, but does not wait for it longer than p.endTimeout, nor
// after a signal on again.
func (p *process) end(again <-chan os.Signal, shutdown func() error) error {
	limit := time.NewTimer(p.endTimeout)
	defer limit.Stop()
	ended := make(chan error, 1)
	go func() { ended <- shutdown() }()
	select {
	case err := <-ended:
		if err == nil {
			p.log.Info("ended")
		}
		return err
	case <-again:
		return errors.Join(errors.New("ended by a second signal"), os.RemoveAll(p.temporary))
	case <-limit.C:
		return errors.Join(fmt.Errorf("did not end within %s; what was accepted is kept", p.endTimeout), os.RemoveAll(p.temporary))
	}
}

// close releases the store, then what it was in.
func (p *process) close() error {
	signal.Stop(p.hangUps)
	var errs []error
	if p.listener != nil && p.http == nil {
		errs = append(errs, p.listener.Close()) // else the server has closed it
	}
	for _, s := range []*socket.Server{p.hookSocket, p.controlSocket} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.temporary != "" {
		errs = append(errs, os.RemoveAll(p.temporary))
	}
	return errors.Join(errs...)
}

// notify tells systemd, if it started this process, how the process stands.
func (p *process) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		p.log.Warn("cannot notify systemd", "error", err)
	}
}
