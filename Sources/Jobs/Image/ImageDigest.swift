internal import Digests

/// The SHA-256 of an image's bytes. It identifies the image in the image store and in its ETag.
package struct ImageDigest: Hashable, Sendable, Codable {
  /// 32 bytes.
  package let bytes: [UInt8]

  /// - Parameter bytes: Exactly 32 bytes; otherwise returns nil.
  package init?(bytes: some Sequence<UInt8>) {
    self.bytes = Array(bytes)
    guard self.bytes.count == 32 else { return nil }
  }

  /// The digest of `content`.
  package init(of content: [UInt8]) { bytes = Array(SHA256.hash(data: content)) }

  /// The strong entity tag of the bytes (RFC 9110 section 8.8.3).
  package var entityTag: String { "\"sha256-\(hex)\"" }

  /// Parses an entity tag made by ``entityTag``; nil for any other.
  package init?(entityTag: String) {
    guard entityTag.hasPrefix("\"sha256-"), entityTag.hasSuffix("\"") else { return nil }
    self.init(hex: entityTag.dropFirst(8).dropLast())
  }

  /// Parses 64 hexadecimal digits, in either case.
  package init?(hex: some StringProtocol) {
    let digits = hex.utf8.map(hexValue)
    guard digits.count == 64 else { return nil }
    var bytes: [UInt8] = []
    for index in stride(from: 0, to: 64, by: 2) {
      guard let high = digits[index], let low = digits[index + 1] else { return nil }
      bytes.append(UInt8(high << 4 | low))
    }
    self.init(bytes: bytes)
  }

  /// 64 hexadecimal digits, lower case.
  package var hex: String { bytes.hexDigits }

  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let digest = try ImageDigest(hex: container.decode(String.self)) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a SHA-256")
    }
    self = digest
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(hex)
  }
}
