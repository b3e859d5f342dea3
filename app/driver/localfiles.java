package org.apache.hadoop.fs.local;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
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
    public void setPermission(Path path, FsPermission permission) throws IOException {
        if (permission.getStickyBit()) {
            super.setPermission(path, permission);
        } else {
            java.nio.file.Path file = pathToFile(path).toPath();
            Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(permission.toString()));
        }
    }

    public FileStatus getFileLinkStatus(Path path) throws IOException {
        if (Files.isSymbolicLink(pathToFile(path).toPath())) return super.getFileLinkStatus(path);
        return getFileStatus(path);
    }
}
