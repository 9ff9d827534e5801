package discovery

import (
	"fmt"
	"slices"

	"github.com/tryst-rdma/tryst/verbs"
)

// Again finds the entry of a GID in a table that may have changed: an entry
// loses its place when its address or its link goes, and may come back at
// another index (a port flap, an address that was set anew).
//
// It is the same GID of the same type, at whatever index; else the best entry
// that is its equal: of the same type, family and reach. Then same is false,
// and peers must be told the new GID. The error is verbs.ErrNotFound and says
// what the table has. Of InfiniBand only the same GID counts, since another
// entry is another port or subnet.
func Again(table []verbs.GIDEntry, was verbs.GIDEntry) (now verbs.GIDEntry, same bool, err error) {
	var equals []GID
	var has []string
	// Several entries may hold one GID: that at the old index comes first.
	for _, e := range table {
		if e == was {
			return e, true, nil
		}
	}
	for _, e := range table {
		if e.GID == was.GID && e.Type == was.Type {
			return e, true, nil
		}
		a, b := GID{GIDEntry: e}, GID{GIDEntry: was}
		if e.Type == was.Type && was.Type != verbs.GIDTypeIB &&
			e.GID.Addr().Is4() == was.GID.Addr().Is4() && reach(a) == reach(b) {
			equals = append(equals, a)
		}
		has = append(has, fmt.Sprintf("%d (%s, %s)", e.Index, e.GID, e.Type))
	}
	if len(equals) == 0 {
		return verbs.GIDEntry{}, false, verbs.Errorf("find again", GID{GIDEntry: was}.String(), verbs.ErrNotFound,
			"it is not in the port's table any more, nor one of its kind; there %s", listed(has, "is none"))
	}
	slices.SortFunc(equals, func(a, b GID) int { return a.Index - b.Index })
	return equals[0].GIDEntry, false, nil
}
