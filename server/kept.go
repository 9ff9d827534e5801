package server

// addKept adds what a server keeps.
func (s *Server) addKept() {
	s.metrics.Kept.Add("response cache", "not acknowledged by the requester yet, up to kept.per-peer and kept.total", func() int64 { return s.cache.Stats().Bytes })
	s.metrics.Kept.Add("file cache", "kept for the next pull, up to file-cache; freed when unused for twice release-after", s.catalog.Cached)
}
