package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var concurrentExamples = []example{
	{"a poller that follows its cursor sees every message once", func(f *fixture) {
		const writers, each = 8, 25
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := range each {
					if _, err := f.store.Enqueue(ctx, message(fmt.Sprintf("m%d-%d", w, i))); err != nil {
						f.testing.Errorf("enqueue: %v", err)
						return
					}
				}
			})
		}
		finished := make(chan struct{})
		go func() {
			group.Wait()
			close(finished)
		}()
		seen := map[string]bool{}
		next := make([]int, writers)
		for last := false; !last; {
			select {
			case <-finished:
				last = true // one more poll sees what is left
			default:
			}
			for _, m := range f.unseen(ben) {
				var w, i int
				if _, err := fmt.Sscanf(m.ID, "m%d-%d", &w, &i); err != nil || seen[m.ID] || next[w] != i {
					f.testing.Fatalf("message %s came twice or out of order", m.ID)
				}
				seen[m.ID], next[w] = true, i+1
			}
		}
		f.wantEqual("messages seen", len(seen), writers*each)
		f.wantEqual("cursor", f.cursors[ben], f.cursor(ben, writers*each))
	}},
	{"a large inbox is paged and searched to its end", func(f *fixture) {
		const writers, each = 64, 40
		rare := message("rare")
		rare.From = zoe
		f.enqueue(rare)
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := range each {
					if _, err := f.store.Enqueue(ctx, message(fmt.Sprintf("m%d-%d", w, i))); err != nil {
						f.testing.Errorf("enqueue: %v", err)
					}
				}
			})
		}
		group.Wait()
		seen := map[string]bool{}
		for since := ""; ; {
			page := f.pollPage(store.PollQuery{Agent: ben, Since: since, Limit: agentrelay.MaxLimit, MaxBytes: everything})
			if len(page.Messages) == 0 {
				break
			}
			for _, id := range idsOf(page.Messages) {
				seen[id] = true
			}
			since = page.Cursor
		}
		f.wantEqual("paged", len(seen), 1+writers*each)
		f.wantEqual("all", len(f.query(store.Filter{Agent: ben})), 1+writers*each)
		f.wantEqual("searched", idsOf(f.query(store.Filter{Agent: ben, From: zoe})), []string{"rare"})
	}},
	{"no message is leased twice", func(f *fixture) {
		const workers, messages = 8, 60
		for i := range messages {
			f.send(fmt.Sprint("m", i))
		}
		var group sync.WaitGroup
		taken := make([][]string, workers)
		for w := range workers {
			group.Go(func() {
				for {
					list, err := f.store.Lease(ctx, store.LeaseRequest{Agent: ben, Limit: 3, MaxBytes: everything, For: time.Hour})
					if err != nil {
						f.testing.Errorf("lease: %v", err)
					}
					if len(list) == 0 {
						return
					}
					taken[w] = append(taken[w], leasedIDs(list)...)
				}
			})
		}
		group.Wait()
		all := slices.Concat(taken...)
		slices.Sort(all)
		f.wantEqual("messages leased once", len(slices.Compact(all)), messages)
		f.wantEqual("leases", len(slices.Concat(taken...)), messages)
	}},
	{"equal messages sent at once are stored once", func(f *fixture) {
		const senders = 16
		var group sync.WaitGroup
		stored := make(chan bool, senders)
		for range senders {
			group.Go(func() {
				e, err := f.store.Enqueue(ctx, message("m1"))
				if err != nil {
					f.testing.Errorf("enqueue: %v", err)
				}
				stored <- !e.Duplicate
			})
		}
		group.Wait()
		close(stored)
		count := 0
		for first := range stored {
			if first {
				count++
			}
		}
		f.wantEqual("times stored", count, 1)
		f.wantInbox(ben, "m1")
	}},
	{"acknowledgements at once make one receipt", func(f *fixture) {
		const callers = 16
		f.send("m1")
		var group sync.WaitGroup
		ids := make([]string, callers)
		for i := range callers {
			group.Go(func() {
				id, err := f.store.Acknowledge(ctx, store.Acknowledgement{Agent: ben, ID: "m1", Failed: i%2 == 0})
				if err != nil {
					f.testing.Errorf("acknowledge: %v", err)
				}
				ids[i] = id
			})
		}
		group.Wait()
		f.wantEqual("different receipt ids", len(slices.Compact(ids)), 1)
		f.wantEqual("inbox of the sender", idsOf(f.poll(ann, "").Messages), ids[:1])
	}},
	{"one failing call does not fail the others", func(f *fixture) {
		const callers = 32
		f.send("known")
		var group sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			group.Go(func() {
				m := message(fmt.Sprint("m", i))
				if i%2 == 0 {
					m = message("known")
					m.From = zoe
				}
				_, errs[i] = f.store.Enqueue(ctx, m)
			})
		}
		group.Wait()
		for i, err := range errs {
			if i%2 == 0 {
				f.wantError(err, agentrelay.ErrIDConflict)
			} else {
				f.must(err)
			}
		}
		f.wantEqual("stored", len(f.poll(ben, "").Messages), 1+callers/2)
	}},
}
