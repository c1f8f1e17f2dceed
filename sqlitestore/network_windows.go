package sqlitestore

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// networkFS says on which file system path is, and whether that is one that several
// machines may share. Tests replace it.
var networkFS = func(path string) (name string, remote bool) {
	volume := filepath.VolumeName(path)
	if strings.HasPrefix(volume, `\\`) {
		device := strings.HasPrefix(volume, `\\?\`) || strings.HasPrefix(volume, `\\.\`)
		if !device || strings.HasPrefix(strings.ToUpper(volume), `\\?\UNC`) {
			return "UNC path", true
		}
		volume = volume[len(`\\?\`):]
	}
	root, err := windows.UTF16PtrFromString(volume + `\`)
	if err != nil {
		return "", false
	}
	return "remote drive", windows.GetDriveType(root) == windows.DRIVE_REMOTE
}
