internal import Digests

/// A short placeholder for what tells one thing from another: the SHA-256 of its parts, each with its length before it.
public struct Fingerprint: Hashable, Sendable, Codable {
  /// 32 bytes.
  public let bytes: [UInt8]

  /// - Parameter bytes: 32 of them, else nil.
  public init?(bytes: some Sequence<UInt8>) {
    self.bytes = Array(bytes)
    guard self.bytes.count == 32 else { return nil }
  }

  /// Of parts whose order counts.
  public init(of parts: [String]) {
    // Hashed at once: of short parts each update costs more than its bytes.
    var text: [UInt8] = []
    text.reserveCapacity(256)
    for part in parts {
      withUnsafeBytes(of: UInt64(part.utf8.count).littleEndian) { text.append(contentsOf: $0) }
      text.append(contentsOf: part.utf8)
    }
    bytes = SHA256.hash(data: text).withUnsafeBytes { Array($0) }
  }

  /// 64 hexadecimal digits, lower case.
  public var hex: String { bytes.hexDigits }
}
