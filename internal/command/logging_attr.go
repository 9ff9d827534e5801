package command

import (
	"fmt"
	"log/slog"
	"time"
)

// sameInBoth makes a field of a log line the same in text and in JSON: a duration is in seconds, as all others are, and
// what has a text is that text. The handler for JSON would write nanoseconds, and the fields of structures.
func sameInBoth(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindDuration:
		a.Value = slog.Float64Value(v.Duration().Seconds())
	case slog.KindAny:
		switch x := v.Any().(type) {
		case []string, slog.Level, *slog.Source, time.Time, nil:
		case error:
			a.Value = slog.StringValue(x.Error())
		default:
			a.Value = slog.StringValue(fmt.Sprintf("%+v", x))
		}
	}
	return a
}
