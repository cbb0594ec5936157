internal import Digests

/// The SHA-256 of a sequence of strings. Each string is preceded by its length, so different sequences have
/// different inputs.
package struct Fingerprint: Hashable, Sendable, Codable {
  /// 32 bytes.
  package let bytes: [UInt8]

  /// - Parameter bytes: Exactly 32 bytes; otherwise returns nil.
  package init?(bytes: some Sequence<UInt8>) {
    self.bytes = Array(bytes)
    guard self.bytes.count == 32 else { return nil }
  }

  /// The fingerprint of these parts. Their order matters.
  package init(of parts: [String]) {
    // One call of the hash function, because each update costs more than hashing a short part.
    var text: [UInt8] = []
    text.reserveCapacity(256)
    for part in parts {
      withUnsafeBytes(of: UInt64(part.utf8.count).littleEndian) { text.append(contentsOf: $0) }
      text.append(contentsOf: part.utf8)
    }
    bytes = SHA256.hash(data: text).withUnsafeBytes { Array($0) }
  }

  /// 64 hexadecimal digits, lower case.
  package var hex: String { bytes.hexDigits }
}
