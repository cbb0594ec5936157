internal import Digests
internal import Jobs
internal import Settings

extension FileText {
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
}
