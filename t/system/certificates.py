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

    def issue(self, name, names, days=2):
        """A certificate for DNS:… and IP:…, and its key; days -1: expired."""
        files = self._path(f"{name}.pem"), self._path(f"{name}.key")
        request = self._path(f"{name}.csr")
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", files[1], "-out", request)
        (self._directory / "names").write_text(f"subjectAltName={names}\n")
        _openssl("x509", "-req", "-days", str(days), "-in", request, "-CA",
                 self.file, "-CAkey", self._path(f"{self._name}.key"),
                 "-CAcreateserial", "-extfile", self._path("names"), "-out",
                 files[0])
        return files

    def _path(self, name):
        return str(self._directory / name)


def _openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
