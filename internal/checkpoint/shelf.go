package checkpoint

import "sync"

// shelf is what a mirror knows of the files of a version. They may have been replaced or changed since, so what is made
// from them is checked, as with memory (known).
type shelf struct {
	mu sync.Mutex
	// All below are guarded by mu.
	version Publication          // without a number before it came whole
	tensors map[string]shelfSpot // by name
}

// shelfSpot is the place of a tensor.
type shelfSpot struct {
	info *TensorInfo
	path string
	off  int64
}

// fill is called when the files of a version have their names.
func (s *shelf) fill(m *Manifest, outputs []*output) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.tensors = m.Publication, make(map[string]shelfSpot)
	for _, out := range outputs {
		if !out.resumable() {
			continue
		}
		for _, i := range out.entries {
			e := &m.Entries[i]
			s.tensors[e.Name] = shelfSpot{e, out.path, out.offsets[i]}
		}
	}
}

// last implements basis.
func (s *shelf) last() Publication {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// find implements basis.
func (s *shelf) find(e *TensorInfo) *way {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.tensors[e.Name]
	if !ok || !sameLayout(at.info, e) {
		return nil
	}
	return &way{read: at.read, digest: at.info.Digest, from: s}
}

// forget implements basis.
func (s *shelf) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tensors, name)
}

// read reads the tensor from off.
func (at shelfSpot) read(dst []byte, off int64) error {
	f, _, err := openFile(at.path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(dst, at.off+off)
	return err
}
