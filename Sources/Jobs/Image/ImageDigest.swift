internal import Digests

/// The SHA-256 of an image's bytes. It identifies the image in the image store and in its ETag.
package struct ImageDigest: Hash256 {
  package let bytes: [UInt8]

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
}

/// A hash of 32 bytes, which JSON contains as 64 hexadecimal digits.
package protocol Hash256: Hashable, Sendable, Codable {
  /// 32 bytes.
  var bytes: [UInt8] { get }

  /// - Parameter bytes: Exactly 32 bytes; otherwise returns nil.
  init?(bytes: some Sequence<UInt8>)
}

extension Hash256 {
  /// Parses 64 hexadecimal digits, in either case.
  package init?(hex: some StringProtocol) {
    guard let bytes = [UInt8](hexDigits: hex) else { return nil }
    self.init(bytes: bytes)
  }

  /// 64 hexadecimal digits, lower case.
  package var hex: String { bytes.hexDigits }

  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let hash = try Self(hex: container.decode(String.self)) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a SHA-256")
    }
    self = hash
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(hex)
  }
}

/// The name under which an image's bytes are stored: their digest and a generation.
///
/// When bytes are stored again after they were released, they get a new generation. Therefore a late removal,
/// requested by any instance, deletes only the old copy.
package struct ImageName: Hashable, Sendable {
  /// The digest of the bytes.
  package let digest: ImageDigest
  /// 0 if only one process removes bytes.
  package let generation: Int64

  package init(_ digest: ImageDigest, generation: Int64 = 0) {
    self.digest = digest
    self.generation = generation
  }
}

/// A stored image.
package struct KeptImage: Sendable, Equatable {
  package let name: ImageName
  /// The number of bytes.
  package let bytes: Int

  package init(_ name: ImageName, bytes: Int) {
    self.name = name
    self.bytes = bytes
  }
}

/// A job store, as the image store sees it. Each image store belongs to one job store, whose instances delete
/// its unused images.
package protocol ImageOwner: Sendable {
  /// Returns the store's name. It is created with the store and never changes; a copy of the store has the
  /// same name.
  func name() async throws(StoreError) -> String
}

extension Collection<UInt8> {
  /// Two hexadecimal digits per byte, lower case.
  package var hexDigits: String {
    String(unsafeUninitializedCapacity: 2 * count) { buffer in
      for (index, byte) in enumerated() {
        buffer[2 * index] = hexDigit(UInt64(byte >> 4))
        buffer[2 * index + 1] = hexDigit(UInt64(byte & 15))
      }
      return 2 * count
    }
  }
}

extension [UInt8] {
  /// Parses two hexadecimal digits per byte, in either case; nil for any other text.
  package init?(hexDigits text: some StringProtocol) {
    let digits = text.utf8.map(hexValue)
    guard digits.count % 2 == 0 else { return nil }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(digits.count / 2)
    for index in stride(from: 0, to: digits.count, by: 2) {
      guard let high = digits[index], let low = digits[index + 1] else { return nil }
      bytes.append(UInt8(high << 4 | low))
    }
    self = bytes
  }
}
