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
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/httpapi"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

const (
	endTimeout   = 10 * time.Second
	drainTimeout = 7 * time.Second

	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	// maxHeaderBytes is far more than a request of the protocol has.
	maxHeaderBytes = 64 << 10
)

// process is a broker with everything it stands on and everything that stands
// on it.
type process struct {
	log      *slog.Logger
	listener net.Listener
	store    store.Store
	broker   *broker.Broker
	http     *http.Server
	// temporary is a data directory to remove at the end, if any.
	temporary string
	// endTimeout bounds a clean end, drainTimeout the part of it in which
	// requests under way are answered.
	endTimeout, drainTimeout time.Duration
}

// openProcess opens what c asks for. On an error nothing stays open.
func openProcess(ctx context.Context, c *config, version string, log *slog.Logger) (*process, error) {
	p := &process{log: log, endTimeout: endTimeout, drainTimeout: drainTimeout}
	if err := p.open(ctx, c, version); err != nil {
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
	p.log.Warn("other machines may reach this address; requests are signed but not encrypted, so put a proxy with TLS before it")
	if len(c.PublicHosts) == 0 {
		p.log.Warn("requests from other machines will be refused; add the names and addresses they call to public_hosts")
	}
}

func (p *process) open(ctx context.Context, c *config, version string) (err error) {
	if p.listener, err = listen(ctx, c); err != nil {
		return err
	}
	dir := c.DataDir
	if c.Storage == storageMemory {
		if dir, err = os.MkdirTemp("", "agent-relay-*"); err != nil {
			return fmt.Errorf("make a temporary directory: %w; set TMPDIR to one that can be written", err)
		}
		p.temporary = dir
	}
	told := p.newObservers(c, version)
	opened, err := sqlite.Open(ctx, sqlite.Options{Dir: dir, Options: store.Options{
		TTL: c.MessageTTL, MaxAttempts: c.MaxAttempts, Observe: told.observe, Committed: told.committed,
	}})
	if err != nil {
		return fmt.Errorf("%w (data_dir in %s)", err, c.file)
	}
	p.store = opened
	p.broker, err = broker.Open(ctx, broker.Options{
		Store: p.store, Arrivals: told.arrivals, Secret: string(c.Secret), RequireSingleUse: c.RequireSingleUse, AllowedTargets: c.allowedTargets(),
		Heartbeat: c.Heartbeat, TTL: c.MessageTTL,
		Lockout: broker.Lockout{Failures: c.Lockout.Failures, Duration: c.Lockout.Duration},
		Log:     p.log, Observer: told.broker,
	})
	if err != nil {
		return err
	}
	p.http = &http.Server{
		Handler: httpapi.New(httpapi.Options{
			Broker: p.broker, Version: version, Storage: c.Storage, Log: p.log,
			PublicHosts: c.PublicHosts, TrustedProxies: c.TrustedProxies,
			MaxBodyBytes: c.MaxBodyBytes, Lease: c.Lease,
			PerAgent: c.RateLimit.PerAgent, PerAddress: c.RateLimit.PerAddress,
			Observer: told.http, Metrics: told.metrics,
		}),
		// OPTIONS * is no route of the protocol either.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            readHeaderTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	p.log.Info("listening", "addr", p.listener.Addr().String(), "version", version,
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

// run serves until ctx ends, which is no error, or a part fails. It then ends
// everything in order.
func (p *process) run(ctx context.Context) error {
	// The parts work on until requests under way are answered.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	brokerEnded, httpEnded := make(chan error, 1), make(chan error, 1)
	go func() { brokerEnded <- p.broker.Run(parts) }()
	go func() { httpEnded <- p.http.Serve(p.listener) }()
	p.notify(daemon.SdNotifyReady)

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-brokerEnded:
		brokerEnded <- nil
	case failure = <-httpEnded:
		httpEnded <- nil
	}
	again := make(chan os.Signal, 1)
	if p.temporary != "" {
		// Otherwise another signal is not caught, and ends the process.
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
	}
	p.log.Info("draining")
	p.notify(daemon.SdNotifyStopping)
	return p.end(again, func() error {
		p.broker.Drain()
		p.shutdownHTTP()
		stop()
		err := errors.Join(failure, <-brokerEnded, p.close())
		<-httpEnded
		return err
	})
}

// shutdownHTTP lets requests under way be answered, and cuts off those that
// take too long.
func (p *process) shutdownHTTP() {
	ctx, cancel := context.WithTimeout(context.Background(), p.drainTimeout)
	defer cancel()
	if err := p.http.Shutdown(ctx); err != nil {
		p.log.Warn("cut off requests that were not complete", "error", err)
		_ = p.http.Close()
	}
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
	var errs []error
	if p.listener != nil && p.http == nil {
		errs = append(errs, p.listener.Close()) // else the server has closed it
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
