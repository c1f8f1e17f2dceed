package opencode

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// A frame is what one server-sent event carries; only its data counts here.
type frame struct {
	data     []byte // lines joined with "\n"; empty for a heartbeat
	oversize bool   // the data was over the limit and is left out
}

// A frameReader reads server-sent events (WHATWG HTML, "Server-sent events"). It
// holds one frame of at most max bytes; what is larger is read and dropped.
type frameReader struct {
	r   *bufio.Reader
	max int64
}

func newFrameReader(r io.Reader, most int64) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 32<<10), max: most}
}

// next returns the next frame that has data, or a comment line alone, which is a
// heartbeat. A frame that the stream's end cuts is none. The data is good until the
// next call.
func (f *frameReader) next() (frame, error) {
	var got frame
	some := false // a data line was seen
	for {
		line, long, err := f.line()
		if err != nil {
			return frame{}, err
		}
		if len(line) == 0 {
			if some || got.oversize {
				if got.oversize {
					got.data = nil
				}
				return got, nil
			}
			continue
		}
		if line[0] == ':' {
			if !some && !got.oversize {
				return frame{}, nil
			}
			continue
		}
		if long {
			got = frame{oversize: true}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" || got.oversize {
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		if int64(len(got.data)+len(value)+1) > f.max {
			got = frame{oversize: true}
			continue
		}
		if some {
			got.data = append(got.data, '\n')
		}
		got.data, some = append(got.data, value...), true
	}
}

// line returns a line without its end; long says that it was over the limit, and
// then line is just its beginning.
func (f *frameReader) line() (line []byte, long bool, err error) {
	most := f.max + 8 // the field's name
	for {
		piece, err := f.r.ReadSlice('\n')
		if int64(len(line)+len(piece)) > most {
			long = true
			if line == nil {
				line = append(line, piece[:min(len(piece), 8)]...)
			}
		} else {
			line = append(line, piece...)
		}
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), long, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		}
	}
}
