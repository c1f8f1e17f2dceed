package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Machine-made kinds of text are generated, as many as the fit wants.
var generators = map[string]func(*rand.Rand) string{
	"hex": func(r *rand.Rand) string {
		switch r.IntN(6) {
		case 0:
			return hex.EncodeToString(random(r, 700))
		case 1:
			return strings.ToUpper(hex.EncodeToString(random(r, 700)))
		case 2:
			return hex.Dump(random(r, 300))
		case 3:
			return lines(r, 12, func() string { return hex.EncodeToString(random(r, 32)) + "  " + path(r) })
		case 4:
			return lines(r, 16, func() string { return uuid(r) })
		}
		return lines(r, 10, func() string {
			return strings.TrimSpace(strings.Join(times(8, func() string { return fmt.Sprintf("0x%02x,", r.IntN(256)) }), " "))
		})
	},
	"base64": func(r *rand.Rand) string {
		switch r.IntN(5) {
		case 4:
			text := strings.Join(times(60, func() string { return sentence(r) }), pick(r, ". ", "\n", ",")) + "\n"
			return wrap(base64.StdEncoding.EncodeToString([]byte(text)[:600]), 76)
		case 0:
			return base64.StdEncoding.EncodeToString(random(r, 600))
		case 1:
			text := base64.StdEncoding.EncodeToString(random(r, 600))
			return "-----BEGIN CERTIFICATE-----\n" + wrap(text, 64) + "-----END CERTIFICATE-----\n"
		case 2:
			return lines(r, 8, func() string { return base64.RawURLEncoding.EncodeToString(random(r, 20+r.IntN(80))) })
		}
		return wrap(base64.StdEncoding.EncodeToString(random(r, 600)), 76)
	},
	"json": func(r *rand.Rand) string {
		value := object(r, 3)
		text, _ := json.Marshal(value)
		switch r.IntN(5) {
		case 4:
			text, _ = json.Marshal(map[string]any{key(r): matrix(r), key(r): object(r, 1)})
		case 0:
			text, _ = json.MarshalIndent(value, "", "  ")
		case 1:
			text, _ = json.MarshalIndent(value, "", "    ")
		case 2:
			return lines(r, 6, func() string { text, _ := json.Marshal(object(r, 1)); return string(text) })
		}
		return string(text)
	},
	"logs": func(r *rand.Rand) string {
		kind := r.IntN(7)
		at := time.Date(2019+r.IntN(8), 3, 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e9), time.UTC)
		return lines(r, 12, func() string {
			at = at.Add(time.Duration(r.Int64N(int64(4 * time.Second))))
			return logLine(r, kind, at)
		})
	},
	"emoji": func(r *rand.Rand) string {
		kind := r.IntN(4)
		var b strings.Builder
		for b.Len() < 900 {
			switch {
			case kind == 0 || r.IntN(3) == 0:
				b.WriteString(emoji(r))
			case kind == 1:
				b.WriteString(emoji(r) + " " + word(r) + " ")
			case kind == 2:
				b.WriteString(emoji(r) + emoji(r) + "\n")
			default:
				b.WriteString(word(r) + " " + word(r) + " " + emoji(r) + pick(r, " ", "! ", "\n"))
			}
		}
		return b.String()
	},
	"numbers": func(r *rand.Rand) string {
		kind := r.IntN(4)
		return lines(r, 20, func() string {
			return strings.Join(times(6, func() string {
				switch kind {
				case 0:
					return fmt.Sprint(r.IntN(1000000))
				case 1:
					return fmt.Sprintf("%.4f", r.NormFloat64()*100)
				case 2:
					return fmt.Sprintf("%8d", r.IntN(100000))
				}
				return fmt.Sprintf("%.3e", r.ExpFloat64()*1e6)
			}), pick(r, ",", " ", "\t", ", "))
		})
	},
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

func times(n int, f func() string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = f()
	}
	return out
}

func lines(r *rand.Rand, n int, f func() string) string {
	return strings.Join(times(n, f), "\n") + "\n"
}

func wrap(text string, width int) string {
	var b strings.Builder
	for len(text) > width {
		b.WriteString(text[:width] + "\n")
		text = text[width:]
	}
	return b.String() + text + "\n"
}

func uuid(r *rand.Rand) string {
	h := hex.EncodeToString(random(r, 16))
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

var nouns = strings.Fields(`user order item status name email address price count total index key value type message error level
	request response service server client session token account project task event source target path file line column width height
	color image title body header content author date time created updated version license dependencies scripts config options
	region zone cluster node pod container memory cpu disk network latency duration timeout retry attempt queue worker job batch`)

var verbs = strings.Fields(`started finished failed received sent opened closed retrying connecting connected timed refused loaded
	parsed wrote read deleted created updated skipped accepted rejected scheduled evicted flushed compacted rotated reloaded`)

func word(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return pick(r, verbs...)
	}
	return pick(r, nouns...)
}

func key(r *rand.Rand) string {
	a, b := pick(r, nouns...), pick(r, nouns...)
	switch r.IntN(4) {
	case 0:
		return a + "_" + b
	case 1:
		return a + strings.ToUpper(b[:1]) + b[1:]
	case 2:
		return a + "-" + b
	}
	return a
}

func sentence(r *rand.Rand) string {
	s := strings.Join(times(3+r.IntN(8), func() string { return word(r) + pick(r, "", "", " the", " of", " to") }), " ")
	return strings.ToUpper(s[:1]) + s[1:]
}

func path(r *rand.Rand) string {
	return pick(r, "", "/", "./", "src/") + strings.Join(times(1+r.IntN(4), func() string { return key(r) }), "/") +
		pick(r, ".go", ".ts", ".json", ".md", "", ".tar.gz", ".py")
}

func host(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return fmt.Sprintf("%d.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256))
	}
	return pick(r, nouns...) + "-" + fmt.Sprint(r.IntN(20)) + pick(r, ".example.com", ".internal", "")
}

func object(r *rand.Rand, depth int) map[string]any {
	m := map[string]any{}
	for range 2 + r.IntN(6) {
		m[key(r)] = jsonValue(r, depth)
	}
	return m
}

// matrix returns rows of numbers, some of them as strings.
func matrix(r *rand.Rand) any {
	kind := r.IntN(4)
	rows := make([]any, 10+r.IntN(20))
	for i := range rows {
		row := make([]any, 2+kind)
		for j := range row {
			switch (j + kind) % 4 {
			case 0:
				row[j] = 1.6e9 + float64(r.IntN(1e8))
			case 1:
				row[j] = fmt.Sprint(r.IntN(1e9))
			case 2:
				row[j] = float64(r.IntN(1e6)) / 1e3
			default:
				row[j] = word(r)
			}
		}
		rows[i] = row
	}
	return rows
}

func jsonValue(r *rand.Rand, depth int) any {
	k := r.IntN(13)
	if depth > 0 && k < 3 {
		if k == 0 {
			return object(r, depth-1)
		}
		list := make([]any, 1+r.IntN(6))
		same := r.IntN(2) == 0
		for i := range list {
			if same {
				list[i] = float64(r.IntN(100000)) / 100
			} else {
				list[i] = jsonValue(r, depth-1)
			}
		}
		return list
	}
	switch k {
	case 3:
		return r.IntN(10)
	case 4:
		return r.IntN(1000000)
	case 5:
		return r.NormFloat64() * 100
	case 6:
		return r.IntN(2) == 0
	case 7:
		return uuid(r)
	case 8:
		return nil
	case 9:
		return time.Unix(1.5e9+r.Int64N(2e8), 0).UTC().Format(time.RFC3339)
	case 10:
		return "https://" + host(r) + "/" + path(r)
	case 11:
		return hex.EncodeToString(random(r, 4+r.IntN(28)))
	}
	return sentence(r)
}

func logLine(r *rand.Rand, kind int, at time.Time) string {
	level := pick(r, "INFO", "INFO", "DEBUG", "WARN", "ERROR")
	field := func() string {
		return key(r) + "=" + pick(r, fmt.Sprint(r.IntN(5000)), word(r), fmt.Sprintf("%dms", r.IntN(900)), `"`+sentence(r)+`"`, path(r),
			hex.EncodeToString(random(r, 6)))
	}
	switch kind {
	case 0:
		return fmt.Sprintf("%s %s %s", at.Format(time.RFC3339Nano), level, sentence(r)+" "+field())
	case 1:
		return fmt.Sprintf(`%s - - [%s] "%s /%s HTTP/1.1" %d %d "-" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"`, host(r),
			at.Format("02/Jan/2006:15:04:05 -0700"), pick(r, "GET", "POST", "PUT"), path(r), 200+r.IntN(4)*101, r.IntN(90000))
	case 2:
		return fmt.Sprintf("%s %s %s[%d]: %s", at.Format(time.Stamp), host(r), key(r), r.IntN(40000), sentence(r))
	case 3:
		return fmt.Sprintf("time=%s level=%s msg=%q %s %s", at.Format("2006-01-02T15:04:05.000Z07:00"), level, sentence(r), field(), field())
	case 4:
		return fmt.Sprintf("[%s] [%-5s] [%s] %s: %s", at.Format("2006-01-02 15:04:05,000"), level, key(r), path(r), sentence(r))
	case 5:
		text, _ := json.Marshal(map[string]any{"ts": at.UnixMilli(), "level": strings.ToLower(level), "msg": sentence(r), key(r): jsonValue(r, 0), "trace": uuid(r)})
		return string(text)
	}
	return pick(r,
		fmt.Sprintf("\tat com.example.%s.%s(%s.java:%d)", pick(r, nouns...), key(r), key(r), r.IntN(900)),
		fmt.Sprintf("  File %q, line %d, in %s", path(r), r.IntN(900), key(r)),
		fmt.Sprintf("goroutine %d [running]:\n%s(0x%x, 0x%x)\n\t/%s:%d +0x%x", r.IntN(99), key(r), r.Uint32(), r.Uint32(), path(r), r.IntN(900), r.IntN(4096)),
		fmt.Sprintf("ok  \tgithub.com/%s/%s\t%.3fs", key(r), key(r), r.ExpFloat64()*3),
		fmt.Sprintf("--- FAIL: Test%s (%.2fs)", key(r), r.Float64()))
}

// emoji returns one of those that people write, some as sequences.
func emoji(r *rand.Rand) string {
	blocks := [][2]rune{{0x1F600, 0x1F64F}, {0x1F600, 0x1F64F}, {0x1F300, 0x1F5FF}, {0x1F680, 0x1F6C5}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FA7C}, {0x2600, 0x27BF}}
	b := blocks[r.IntN(len(blocks))]
	one := string(b[0] + rune(r.IntN(int(b[1]-b[0]+1))))
	switch r.IntN(16) {
	case 0:
		return one + "\uFE0F"
	case 1:
		return pick(r, "👍", "👋", "🙏", "💪", "👏", "🤝") + string(rune(0x1F3FB+r.IntN(5)))
	case 2:
		return string(rune(0x1F1E6+r.IntN(26))) + string(rune(0x1F1E6+r.IntN(26)))
	case 3:
		return pick(r, "👨‍👩‍👧", "👩‍💻", "🏳️‍🌈", "👨‍🔬", "🧑‍🚀", "❤️‍🔥")
	case 4, 5, 6:
		return pick(r, "😂", "❤️", "🔥", "✅", "🚀", "👍", "🎉", "⚠️", "❌", "😊", "✨", "🐛", "📝", "🤔", "💡")
	}
	return one
}
