package filesystem

import "golang.org/x/sys/unix"

// networks are those that leave locks or durability to another
// machine, by their number in statfs(2). 9P and virtiofs are how a virtual
// machine sees its host's files; FUSE may be anything, sshfs among it.
var networks = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.CIFS_SUPER_MAGIC:  "CIFS",
	unix.SMB2_SUPER_MAGIC:  "SMB2",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	unix.V9FS_MAGIC:        "9P",
	0x0bd00bd0:             "Lustre",
	0x47504653:             "GPFS",
	0x013111a8:             "IBRIX",
}

// Network tells what dir lies on. network names a file system that a
// database should not be on, and is empty for any other.
func Network(dir string) (network string, known bool, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", false, err
	}
	return networks[uint32(s.Type)], true, nil
}
