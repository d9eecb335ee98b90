"""Certificates, made by openssl, for servers with TLS and their clients."""

import subprocess


class Authority:
    """An authority whose files are in a directory."""

    def __init__(self, directory, name):
        self._directory, self._name = directory, name
        self.file = self._path(f"{name}.pem")
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                 "-subj", f"/CN={name}", "-keyout", self._path(f"{name}.key"),
                 "-out", self.file)

    def issue(self, name, names, expired=False):
        """A certificate for DNS:… and IP:…, and its key."""
        files = self._path(f"{name}.pem"), self._path(f"{name}.key")
        request = self._path(f"{name}.csr")
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", files[1], "-out", request)
        (self._directory / "names").write_text(f"subjectAltName={names}\n")
        sign = ("x509", "-req", "-in", request, "-CA", self.file, "-CAkey",
                self._path(f"{self._name}.key"), "-CAcreateserial", "-extfile",
                self._path("names"), "-out", files[0])
        if not expired:
            _openssl(*sign, "-days", "2")
            return files
        try:
            _openssl(*sign, "-days", "-1")
        except subprocess.CalledProcessError:   # OpenSSL 3.4 and later
            _openssl(*sign, "-not_before", "20200101000000Z", "-not_after",
                     "20200102000000Z")
        return files

    def _path(self, name):
        return str(self._directory / name)


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
