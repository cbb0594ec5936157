internal import Digests

/// The kind of placeholder that is returned for an image that is not available.
package enum Placeholder: String, Sendable, CaseIterable {
  /// For an image that may still arrive.
  case loading
  /// For an image that failed.
  case failure
}

/// A placeholder image: the operator's, or a built-in one.
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

  /// The image that is returned if the operator has not configured one.
  package static func builtIn(for placeholder: Placeholder) -> PlaceholderImage {
    switch placeholder {
    case .loading: builtInLoading
    case .failure: builtInFailure
    }
  }

  private static let builtInLoading = PlaceholderImage(builtIn: PackageResources.loading_png)
  private static let builtInFailure = PlaceholderImage(builtIn: PackageResources.failure_png)

  /// - Parameter builtIn: An opaque PNG of 480 × 360 pixels.
  private init(builtIn: [UInt8]) {
    self.init(
      bytes: builtIn, description: ImageDescription(format: .png, width: 480, height: 360))
  }

  /// Equal if the bytes are.
  package static func == (a: PlaceholderImage, b: PlaceholderImage) -> Bool {
    a.digest == b.digest
  }
}
