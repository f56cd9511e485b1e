package broker

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxSuggestions bounds the near names of a recipient that is not registered.
const maxSuggestions = 3

// near returns the registered names most like one that is not: first those
// that differ in case and separators alone, then those a few edits away.
func (r *registry) near(name string) []string {
	type candidate struct {
		name     string
		distance int
	}
	plain := plainName(name)
	limit := min(max(2, len(plain)/3), len(plain)/2)
	var found []candidate
	r.mu.RLock()
	for known := range r.agents {
		if d := levenshtein.ComputeDistance(plain, plainName(known)); d <= limit {
			found = append(found, candidate{known, d})
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	names := []string{}
	for _, c := range found[:min(len(found), maxSuggestions)] {
		names = append(names, c.name)
	}
	return names
}

func plainName(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
}
