internal import Digests

/// The kind of placeholder that is returned for an image that is not available.
package enum Placeholder: String, Sendable, CaseIterable {
  /// For an image that may still arrive.
  case loading
  /// For an image that failed.
  case failure
}

/// A placeholder image from the configuration.
package struct PlaceholderImage: Sendable, Equatable {
  /// The complete file.
  package let bytes: [UInt8]
  /// The properties found by the decoder.
  package let description: ImageDescription
  let digest: ImageDigest

  package init(bytes: [UInt8], description: ImageDescription) {
    self.bytes = bytes
    self.description = description
    digest = ImageDigest(bytes: SHA256.hash(data: bytes))!  // a SHA-256 has 32 bytes
  }

  /// Equal if the bytes are.
  package static func == (a: PlaceholderImage, b: PlaceholderImage) -> Bool {
    a.digest == b.digest
  }
}
