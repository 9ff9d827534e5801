package httpserver

import "time"

// The limits, with their reasons.
const (
	// maxHTTPHeader bounds the request line and headers in bytes. Scrapers and browsers send some hundred.
	maxHTTPHeader = 8 << 10

	// requestTimeout bounds how long a client may take to send a request, and how long a
	// connection may be idle, so that neither accumulates.
	requestTimeout = 10 * time.Second

	// maxScrapes bounds how many scrapes are served at once, and scrapeTimeout how long one, or any other
	// response, may take, so that clients that do not read are bounded. Both are above what monitoring systems
	// need. A trace or profile has this time when it is recorded.
	maxScrapes    = 8
	scrapeTimeout = 30 * time.Second

	// maxStatuses bounds the requests for the status at once. The first ones after a pause hold their places for a second, until the
	// peers have answered, and all that ask at one time are answered from one snapshot.
	maxStatuses = 64

	// maxStreams bounds the streams of events, and maxStreamsOfAddress those of one address. A stream ends after streamTime, and
	// its client begins another one: so one that nobody reads ends, too. An event comes each eventInterval.
	maxStreams          = 16
	maxStreamsOfAddress = 6
	streamTime          = 5 * time.Minute
	eventInterval       = time.Second
	// eventTimeout is how long a client may take to read an event.
	eventTimeout = 10 * time.Second

	// maxProfileTime is the longest profile and trace of pprof-address. Meanwhile it holds a place.
	maxProfileTime = 10 * time.Minute
	// maxProfiles bounds the requests to pprof-address in progress: a profile may take as much memory as what it
	// describes.
	maxProfiles = 8

	// maxTraces bounds the recordings that are under way at once.
	maxTraces = 2
	// maxTraceTime bounds a recording, and traceTime is its length by default.
	maxTraceTime = time.Minute
	traceTime    = time.Second
)
