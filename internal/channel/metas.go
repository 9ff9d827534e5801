package channel

import "github.com/tryst-rdma/tryst/internal/wire"

// metas is a cache of the meta-data of the last large value under each key. With it the
// next request can carry a destination. It evicts the least recently used key. Keys have
// no step in them.
type metas struct {
	of    slab[metaEntry, *metaEntry]
	byKey map[string]ref
	most  int
}

type metaEntry struct {
	node
	key   string
	value wire.Value
}

const byUse listID = 1 // the least recently used first

func newMetas(most int) metas {
	return metas{of: newSlab[metaEntry](byUse), byKey: make(map[string]ref), most: most}
}

func (m *metas) find(key string) *wire.Value {
	r, ok := m.byKey[key]
	if !ok {
		return nil
	}
	m.of.move(r, byUse)
	return &m.of.at(r).value
}

func (m *metas) put(key string, v *wire.Value) {
	r, ok := m.byKey[key]
	if !ok {
		if m.of.n == m.most {
			m.drop(m.of.at(m.of.first(byUse)).key)
		}
		r = m.of.add()
		m.of.at(r).key = key
		m.byKey[key] = r
	}
	v.CopyTo(&m.of.at(r).value)
	m.of.move(r, byUse)
}

func (m *metas) drop(key string) {
	if r, ok := m.byKey[key]; ok {
		delete(m.byKey, key)
		m.of.at(r).key = ""
		m.of.remove(r)
	}
}
