package statusapi

import "time"

// Version is the version of the format: a higher one is not for readers of this one.
const Version = 1

// The paths on the metrics address.
const (
	Path       = "/api/status" // one Status
	EventsPath = "/api/events" // server-sent events, each a Status
)

// Status is what a process does.
type Status struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"` // of the snapshot
	Process Process   `json:"process"`
	// Settings are those that differ from their defaults.
	Settings []Setting `json:"settings"`
	// Routes is the throughput of each route, now and in all. History has the last minutes; an event after the first one
	// of a stream has none, since its reader has it.
	Routes  []Route  `json:"routes"`
	History *History `json:"history,omitempty"`
	// Peers are sorted by task.
	Peers    []Peer   `json:"peers"`
	Waits    Waits    `json:"waits"`
	Steps    Steps    `json:"steps"`
	Publish  Publish  `json:"publish"`
	Groups   Groups   `json:"groups"`
	Sessions Sessions `json:"sessions"`
	Limits   []Limit  `json:"limits"`
	// Warnings are the last lines of the log from WARN on, the newest first.
	Warnings []Warning `json:"warnings"`
}

// Process identifies a process.
type Process struct {
	Task        string `json:"task"`
	Incarnation string `json:"incarnation"` // 16 hexadecimal digits; another one after a restart
	Address     string `json:"address"`     // that it listens on
	PID         int    `json:"pid"`
	Host        string `json:"host"`
	// State is "starting", "publishing", "ready" or "stopping". Reason is why it is not ready, or not alive.
	State         string    `json:"state"`
	Reason        string    `json:"reason,omitempty"`
	Transport     string    `json:"transport"` // the setting
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Build         Build     `json:"build"`
}

// Build describes a binary.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // empty if the go command did not record it
	Modified bool   `json:"modified"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Setting is a setting with its value, as in a flag.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Counts are what was sent and received. The rates are those of the last seconds.
type Counts struct {
	SentBytes         int64 `json:"sent_bytes"`
	ReceivedBytes     int64 `json:"received_bytes"`
	SentPerSecond     int64 `json:"sent_bytes_per_second"`
	ReceivedPerSecond int64 `json:"received_bytes_per_second"`
}

// Route is the throughput over "shm", "rdma", "tcp" or "grpc".
type Route struct {
	Route string `json:"route"`
	Counts
}

// History is the throughput of the last minutes. Each list has one number of bytes for each interval, the last one for that
// which ended at End.
type History struct {
	IntervalSeconds float64        `json:"interval_seconds"`
	End             time.Time      `json:"end"`
	Routes          []RouteHistory `json:"routes"`
}

// RouteHistory is the History of a route, in bytes a second.
type RouteHistory struct {
	Route    string  `json:"route"`
	Sent     []int64 `json:"sent"`
	Received []int64 `json:"received"`
}

// PeerSilent is the state of a peer that does not answer: its process is stopped, or gets no processor, or the path is lost.
const PeerSilent = "silent"

// Peer is how this process and a peer reach each other, and what they send.
type Peer struct {
	Task string `json:"task"`
	// Route is "shm", "rdma", "tcp", "verbs" (before it is known over which), "grpc" or "none".
	Route string `json:"route"`
	// State is "up", "silent" (its connections are up, and it does not answer), "connecting", "down" or "gone".
	State string `json:"state"`
	// Since is when the state began; of "silent", when something came from the peer last, if that is known.
	Since time.Time `json:"since,omitzero"`
	// Reason is why the route is not a better one, and Error why the peer was not reached.
	Reason  string `json:"reason,omitempty"`
	Error   string `json:"error,omitempty"`
	Device  string `json:"device,omitempty"`
	Address string `json:"address,omitempty"` // of the peer
	Breaks  uint64 `json:"breaks"`
	Counts
	// Waits are the waits in Waits.Oldest that the peer is the reason of.
	Waits int `json:"waits"`
}

// Waits are the receives and sends that wait. This is the first place to look at when a job hangs.
type Waits struct {
	// Oldest are the longest waits, the longest first, at most 200. Total counts those that were looked at; Complete is false if
	// there were more.
	Oldest   []Wait `json:"oldest"`
	Total    int    `json:"total"`
	Complete bool   `json:"complete"`
}

// The kinds of waits.
const (
	// WaitReceive: this process waits for a value of a peer.
	WaitReceive = "receive"
	// WaitLocal: this process waits for a value that it sends itself.
	WaitLocal = "local"
	// WaitPeer: a peer waits for a value that this process has not sent.
	WaitPeer = "peer"
	// WaitBegin: a peer waits for a value of a step that this process has not begun.
	WaitBegin = "begin"
	// WaitSpace: a send waits until its receiver has taken earlier values.
	WaitSpace = "space"
	// WaitGroup: a member of a collective operation waits for the others.
	WaitGroup = "group"
)

// Wait is one wait: who waits, for which key, for whom, and since when.
type Wait struct {
	Kind string `json:"kind"`
	// Waiter waits for On, tasks both.
	Waiter string `json:"waiter"`
	On     string `json:"on"`
	// Key is the name of the value. Step is the number of its step, as a text, since it may have 62 bits; Frame and Iteration
	// are those of a loop.
	Key       string    `json:"key"`
	Step      string    `json:"step"`
	Frame     string    `json:"frame,omitempty"`
	Iteration int64     `json:"iteration,omitempty"`
	Since     time.Time `json:"since"`
	Seconds   float64   `json:"seconds"`
	// Detail says in words what it waits for.
	Detail string `json:"detail"`
}

// Steps are the steps that have begun and not ended.
type Steps struct {
	// Oldest are at most 100, the oldest first. Total counts all.
	Oldest []Step `json:"oldest"`
	Total  int    `json:"total"`
}

// Step is a step.
type Step struct {
	Step    string    `json:"step"`
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"`
	Begun   bool      `json:"begun"` // false: only peers have asked for values of it
	Waits   int       `json:"waits"`
	// Unreceived counts the values that were sent and nobody has asked for. UnreceivedKeys are some of them.
	Unreceived     int      `json:"unreceived"`
	UnreceivedKeys []string `json:"unreceived_keys,omitempty"`
}

// Publish is what a process publishes, and to whom.
type Publish struct {
	Publications []Publication `json:"publications"`
	// Pulls are under way, the oldest first, at most 200. TotalPulls counts all.
	Pulls      []Pull `json:"pulls"`
	TotalPulls int    `json:"total_pulls"`
	// Watchers are at most 100, the hosts in turns, of each those that have a version first. TotalWatchers counts all.
	Watchers      []Watcher `json:"watchers"`
	TotalWatchers int       `json:"total_watchers"`
}

// Publication is a version of a publication.
type Publication struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Current   bool      `json:"current"` // false: it was replaced, and is there for its pulls
	Tensors   int       `json:"tensors"`
	Bytes     int64     `json:"bytes"`
	Published time.Time `json:"published"`
	Pulls     int       `json:"pulls"`
	// Number is that of the version, as a text, since it may have 64 bits. Watchers are those of the name, 0 unless Current.
	Number   string `json:"number"`
	Watchers int    `json:"watchers"`
}

// Watcher is a watcher of a publication, which may have no version. All but its address is what it says.
type Watcher struct {
	Publication string    `json:"publication"`
	Watcher     string    `json:"watcher,omitempty"` // its task; empty if it has told none
	Address     string    `json:"address"`
	Since       time.Time `json:"since"` // of its stream; there is a new one with each version
	Seconds     float64   `json:"seconds"`
	// Version and Number are what it has; Version is empty where only the number is known, and Number "0" for none. A watcher
	// of an older build says none, and has no Number and no Behind.
	Version string `json:"version,omitempty"`
	Number  string `json:"number,omitempty"`
	// Behind is how many versions are newer; 64 for as many or more.
	Behind *int `json:"behind,omitempty"`
	// By is how its version came: "deltas" or "whole", and empty without one.
	By string `json:"by,omitempty"`
}

// Pull is a pull that is under way.
type Pull struct {
	Publication string    `json:"publication"`
	Version     string    `json:"version"`
	Puller      string    `json:"puller"`
	Address     string    `json:"address"`
	Since       time.Time `json:"since"`
	Seconds     float64   `json:"seconds"`
	Tensors     int       `json:"tensors"`
	// Bytes is what it asked for, and Sent what was handed to the transport of it.
	Bytes int64 `json:"bytes"`
	Sent  int64 `json:"sent"`
}

// Groups are the groups of collective operations that this process knows; the leader knows those that are not complete.
type Groups struct {
	// Oldest are at most 100, those that are not complete first. Total counts all.
	Oldest []Group `json:"oldest"`
	Total  int     `json:"total"`
}

// Group is a group of collective operations.
type Group struct {
	Key      int32     `json:"key"`
	Size     int       `json:"size"`
	Joined   int       `json:"joined"`
	Complete bool      `json:"complete"`
	Since    time.Time `json:"since"`
	Seconds  float64   `json:"seconds"`
	// Missing are the tasks that have not joined, if the cluster tells which they are; Members are some that have.
	Missing []string `json:"missing,omitempty"`
	Members []string `json:"members,omitempty"`
}

// Sessions are those of TensorFlow masters.
type Sessions struct {
	// Oldest are at most 100. Total counts all.
	Oldest []Session `json:"oldest"`
	Total  int       `json:"total"`
}

// Session is a session of a master.
type Session struct {
	Handle string `json:"handle"` // empty: of masters that make none
	Master string `json:"master,omitempty"`
	Task   string `json:"task"` // the name of this process in it
	Graphs int    `json:"graphs"`
	// Running are the steps that run graphs, the oldest first, at most 20. Steps counts all.
	Running []Running `json:"running"`
	Steps   int       `json:"steps"`
}

// Running is a step that runs.
type Running struct {
	Step    string    `json:"step"`
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"`
}

// Limit is a limit, and how full it is.
type Limit struct {
	Name string `json:"name"`
	Used int64  `json:"used"`
	Most int64  `json:"most"` // 0: no limit
	Unit string `json:"unit"` // "bytes" or ""
	// Setting is the setting that changes it; empty if none does.
	Setting string `json:"setting,omitempty"`
}

// Warning is a line of the log.
type Warning struct {
	Time    time.Time `json:"time"` // the last time
	Level   string    `json:"level"`
	Message string    `json:"message"`
	// Attributes are pairs of the line, as texts.
	Attributes []Attribute `json:"attributes,omitempty"`
	Count      int         `json:"count"` // how often it came in a row
}

// Attribute is a pair of a line of the log.
type Attribute struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}
