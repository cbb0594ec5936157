internal import Digests

/// Which picture stands in for an image that is not there.
public enum Placeholder: String, Sendable, CaseIterable {
  /// For one that may yet come.
  case loading
  /// For one that won't.
  case failure
}

/// A picture of the operator's that stands in for images.
public struct PlaceholderPicture: Sendable, Equatable {
  /// The whole file.
  public let bytes: [UInt8]
  /// What it was found to be when it was decoded whole.
  public let description: ImageDescription
  let digest: ImageDigest

  /// A picture that was decoded whole.
  public init(bytes: [UInt8], description: ImageDescription) {
    self.bytes = bytes
    self.description = description
    digest = ImageDigest(bytes: SHA256.hash(data: bytes))!  // a SHA-256 has 32 bytes
  }

  /// The same bytes are the same picture.
  public static func == (a: PlaceholderPicture, b: PlaceholderPicture) -> Bool {
    a.digest == b.digest
  }
}
