package org.apache.hadoop.fs.local;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public final class SlotwiseLocalFs extends DelegateToFileSystem {
    public SlotwiseLocalFs(URI uri, Configuration settings) throws IOException, URISyntaxException {
        super(uri, new SlotwiseLocalFileSystem(), settings, "file", false);
    }

    public int getUriDefaultPort() {
        return -1;
    }

    public FsServerDefaults getServerDefaults(Path path) throws IOException {
        return LocalConfigKeys.getServerDefaults();
    }

    public FsServerDefaults getServerDefaults() throws IOException {
        return LocalConfigKeys.getServerDefaults();
    }

    public boolean isValidName(String name) {
        return true;
    }
}

public final class SlotwiseLocalFileSystem extends RawLocalFileSystem {
    private static final int BITS_ABOVE_PERMISSIONS = 07000;

    public void setPermission(Path path, FsPermission permission) throws IOException {
        java.nio.file.Path file;
        try {
            file = pathToFile(path).toPath();
        } catch (InvalidPathException error) {
            super.setPermission(path, permission);
            return;
        }
        // What a new directory has from the one above stays, as with chmod.
        int mode = ((Integer) Files.getAttribute(file, "unix:mode", new LinkOption[0])).intValue();
        int asked = permission.toShort() | mode & BITS_ABOVE_PERMISSIONS;
        Files.setAttribute(file, "unix:mode", Integer.valueOf(asked), new LinkOption[0]);
    }

    public FileStatus getFileLinkStatus(Path path) throws IOException {
        boolean isLink;
        try {
            isLink = Files.isSymbolicLink(pathToFile(path).toPath());
        } catch (InvalidPathException error) {
            isLink = true;
        }
        return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
}
