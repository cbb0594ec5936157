internal import Digests
internal import Glibc
internal import Jobs

/// Reads files that a configuration names.
enum FileText {
  /// The bytes of a file, or the end of an error message, such as `is a folder, not a file`.
  enum Content {
    case bytes([UInt8])
    case wrong(String)
  }

  static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

  static func fileMistake(_ path: String) -> String? {
    guard access(path, R_OK) == 0 else { return "cannot be read: \(reason(errno))" }
    return isFolder(path) ? "is a folder, not a file" : nil
  }

  static func folderMistake(_ path: String) -> String? {
    if exists(path), !isFolder(path) { return "is not a folder" }
    return access(path, R_OK | X_OK) == 0 ? nil : "cannot be read: \(reason(errno))"
  }

  /// Reads a whole file of at most `limit` bytes.
  ///
  /// - Parameter isPlain: whether to refuse anything but a regular file. A FIFO could block the reader.
  static func read(_ path: String, limit: Int, isPlain: Bool = false) -> Content {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | (isPlain ? O_NONBLOCK : 0))
    guard descriptor >= 0 else { return .wrong("cannot be read: \(reason(errno))") }
    defer { close(descriptor) }
    var status = stat()
    guard !isPlain || (fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG) else {
      return .wrong("is not a file")
    }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = Glibc.read(descriptor, &chunk, chunk.count)
      if count < 0 && errno == EINTR { continue }
      guard count >= 0 else { return .wrong("cannot be read: \(reason(errno))") }
      if count == 0 { return .bytes(bytes) }
      bytes += chunk.prefix(count)
      guard bytes.count <= limit else { return .wrong("is larger than \(Unit.sizes.text(limit))") }
    }
  }

  /// The SHA-256 of the token in a file, without white space around it.
  static func tokenHash(_ path: String) -> Content {
    let content = read(path, limit: 65_536)
    guard case .bytes(let bytes) = content else { return content }
    let isSpace: (UInt8) -> Bool = { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
    var token = bytes.drop(while: isSpace)
    while let last = token.last, isSpace(last) { token.removeLast() }
    return token.isEmpty ? .wrong("contains no token") : .bytes(Array(SHA256.hash(data: token)))
  }

  /// Reads the webhook secrets in a file: one per line. Empty lines and lines that start with `#` are ignored.
  static func webhookSecrets(_ path: String) -> Result<[WebhookSecret], InvalidSecrets> {
    switch read(path, limit: 65_536) {
    case .wrong(let why): return .failure(InvalidSecrets(why: why))
    case .bytes(let bytes):
      let lines = String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isNewline)
        .map { $0.trimming(while: \.isWhitespace) }
        .filter { !$0.isEmpty && !$0.hasPrefix("#") }
      let secrets = lines.map { WebhookSecret(String($0)) }
      if let wrong = secrets.firstIndex(of: nil) {
        let why = "secret \(wrong + 1) is not whsec_ and 24…64 bytes in base64"
        return .failure(InvalidSecrets(why: why))
      }
      guard !secrets.isEmpty else { return .failure(InvalidSecrets(why: "contains no secret")) }
      return .success(secrets.compactMap(\.self))
    }
  }

  /// The end of an error message about a file.
  struct InvalidSecrets: Error { let why: String }

  private static func isFolder(_ path: String) -> Bool {
    var status = stat()
    return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
  }

  private static func reason(_ code: Int32) -> String { String(cString: strerror(code)) }
}

/// Bytes written as hexadecimal digits.
enum HexText {
  static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    let digits = text.utf8.map { Character(Unicode.Scalar($0)).hexDigitValue }
    guard digits.count.isMultiple(of: 2) else { return nil }
    var bytes: [UInt8] = []
    for index in stride(from: 0, to: digits.count, by: 2) {
      guard let high = digits[index], let low = digits[index + 1] else { return nil }
      bytes.append(UInt8(high << 4 | low))
    }
    return bytes
  }
}
