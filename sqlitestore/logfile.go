package sqlitestore

import (
	"bytes"
	"sync"
)

// A sync is dearer if the file has become longer: its length, and where the new blocks
// lie, have to reach the disk as well, which about doubles it (measured on ext4). So the
// write-ahead log does not grow with each transaction but by logStep at a time, and the
// transactions that follow write over what fills it. To SQLite that is what old frames
// are that lie behind the end of the log: the salt is not that of the log, so it ends there.

// logStep is by how much the log grows: 63 pages, some 12 transactions of one Append.
const logStep = 256 << 10

// filler is no zeros, since a page may be: if its write failed, what is there already would
// be the page all the same, and a transaction that was reported as unwritten would be
// whole. No page of SQLite begins with ones, which as a type, or as the number of another
// page, are impossible.
var filler = sync.OnceValue(func() []byte { return bytes.Repeat([]byte{0xff}, logStep) })

// A logFile is the write-ahead log. Who holds SQLite's lock for writing is the only one
// that writes to it.
type logFile struct {
	*spaceFile
	// size is what the file is known to have. Another process may have cut it since,
	// which SQLite does where it starts the log anew; then it grows without steps
	// up to here.
	size int64
}

func (f *logFile) WriteAt(p []byte, off int64) (int, error) {
	if off == 0 { // the log begins anew
		f.size = 0
	}
	if end := off + int64(len(p)); end > f.size {
		f.grow(end)
	}
	return f.spaceFile.WriteAt(p, off)
}

// grow makes the file long enough for a write up to end, and some more to come. Where it
// cannot, the write itself tells why.
func (f *logFile) grow(end int64) {
	size, err := f.Size()
	if err != nil {
		return
	}
	for size < end {
		n, err := f.systemFile.WriteAt(filler(), size)
		if size += int64(n); err != nil {
			break
		}
	}
	f.size = size
}
