package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// patience is how long a condition may take to come about.
const patience = 30 * time.Second

// smallDisk mounts a file system of its own.
func smallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		if os.Getenv("AGENT_RELAY_REQUIRE_PEERS") == "1" {
			t.Fatalf("mount a small disk: %v", err)
		}
		t.Skipf("a small disk can be mounted by root alone: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk takes all the room there is.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			size /= 2
		}
	}
}

func TestDiskFull(t *testing.T) {
	dir := smallDisk(t, 24)
	s, d, err := openDamaged(t, filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sendTo(t, s, 0, 300)
	filler := filepath.Join(dir, "filler")
	fillDisk(t, filler)
	stored := sendUntilFull(t, s, 300)
	wantAllSettled(t, s, stored)
	if _, err := s.Enqueue(t.Context(), messageTo("beta", "more", 60_000)); !errors.Is(err, agentrelay.ErrStorageFull) {
		t.Errorf("while the disk is full a send answers %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	wantRecovery(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, _, err := openDamaged(t, filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got, err := inboxOf(t, again); err != nil || len(got) != 1 {
		t.Errorf("after a restart %d messages wait, %v, want the last", len(got), err)
	}
	if found := d.all(); len(found) > 0 {
		t.Errorf("damaged: %v", found)
	}
}

// sendUntilFull returns how many messages are stored. None may be stored in
// part.
func sendUntilFull(t *testing.T, s *Store, n int) int {
	t.Helper()
	for ; ; n++ {
		_, err := s.Enqueue(t.Context(), messageTo("beta", fmt.Sprint("m", n), 50_000))
		switch {
		case errors.Is(err, agentrelay.ErrStorageFull):
			got, err := inboxOf(t, s)
			if err != nil || len(got) != n {
				t.Fatalf("%d of %d messages can be polled on a full disk, %v", len(got), n, err)
			}
			return n
		case err != nil:
			t.Fatal(err)
		}
	}
}

// wantAllSettled ends all messages, half of them through a lease.
func wantAllSettled(t *testing.T, s *Store, n int) {
	t.Helper()
	ctx := t.Context()
	for i := range n {
		if i%2 == 0 {
			if _, err := s.Acknowledge(ctx, store.Acknowledgement{Agent: "beta", ID: fmt.Sprint("m", i)}); err != nil {
				t.Fatalf("on a full disk, acknowledging message %d of %d answers %v", i, n, err)
			}
		}
	}
	for {
		list, err := s.Lease(ctx, store.LeaseRequest{Agent: "beta", Limit: 50, MaxBytes: agentrelay.MaxPageBytes, For: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
		for _, m := range list {
			if _, err := s.Settle(ctx, store.Settlement{Agent: "beta", ID: m.ID, LeaseID: m.LeaseID, Outcome: agentrelay.OutcomeCompleted}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wantRecovery sends until that works again.
func wantRecovery(t *testing.T, s *Store) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		_, err := s.Enqueue(t.Context(), messageTo("beta", "last", 60_000))
		if err == nil {
			return
		}
		if !errors.Is(err, agentrelay.ErrStorageFull) || time.Now().After(end) {
			t.Fatalf("with room again a send answers %v", err)
		}
	}
}

const limitedDir = "AGENT_RELAY_TEST_LIMITED_DIR"

// TestFileSizeLimit has a process run into the limit on the size of files.
func TestFileSizeLimit(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestInLimitedProcess$", "-test.v")
	cmd.Env = append(os.Environ(), limitedDir+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestInLimitedProcess") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestInLimitedProcess is what TestFileSizeLimit runs.
func TestInLimitedProcess(t *testing.T) {
	dir := os.Getenv(limitedDir)
	if dir == "" {
		t.Skip("TestFileSizeLimit runs this in a process of its own")
	}
	limit := syscall.Rlimit{Cur: 12 << 20, Max: 12 << 20}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	s, d, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sendTo(t, s, 0, 10)
	// While somebody reads, the log cannot be begun anew, and grows to the limit.
	reading, err := s.reader.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := reading.QueryRow(`SELECT count(*) FROM messages`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	logged := sendUntilFull(t, s, 10)
	if info, err := os.Stat(s.path + "-wal"); err != nil || info.Size() < 8<<20 {
		t.Errorf("the log has %v, %v", info, err)
	}
	if err := reading.Rollback(); err != nil {
		t.Fatal(err)
	}
	stored := sendUntilFull(t, s, logged)
	wantAllSettled(t, s, stored)
	if err := s.Err(); err != nil {
		t.Errorf("the store failed: %v", err)
	}
	if _, err := s.Enqueue(t.Context(), messageTo("beta", "more", 1_000_000)); err != nil && !errors.Is(err, agentrelay.ErrStorageFull) {
		t.Errorf("a send answers %v", err)
	}
	if found := d.all(); len(found) > 0 {
		t.Errorf("damaged: %v", found)
	}
}
