/// A destination for a job's image or for one of its variants. The delivery is made before the job succeeds.
package struct DeliveryRequest: Sendable, Equatable, Codable {
  /// The maximum for one job.
  package static let most = 4

  /// The destination.
  package enum Target: Sendable, Equatable, Codable {
    /// A presigned URL, and the header fields that were signed with it.
    case put(SourceURL, headers: [HeaderField])
    /// The name of a destination in the configuration.
    case profile(String, key: DeliveryKey)
  }

  package var target: Target
  /// The name of the variant to deliver; nil for the original.
  package var variant: String?

  package init(_ target: Target, variant: String?) {
    (self.target, self.variant) = (target, variant)
  }
}

/// A delivery that was made.
package struct Delivered: Sendable, Equatable, Codable {
  /// The destination's name; nil if the target was a URL.
  package var destination: String?
  /// The URL without its query, which may contain secrets.
  package var url: String?
  /// The object's key at the destination.
  package var key: String?
  /// The name of the variant; nil for the original.
  package var variant: String?
  /// The number of bytes delivered.
  package var bytes: Int
  /// The entity tag that the receiver returned.
  package var entityTag: String?

  package init(_ request: DeliveryRequest, key: String?, bytes: Int, entityTag: String?) {
    switch request.target {
    case .put(let url, _):
      self.url = url.origin + url.pathAndQuery.prefix { $0 != "?" }
    case .profile(let name, _): destination = name
    }
    (variant, self.key, self.bytes, self.entityTag) = (request.variant, key, bytes, entityTag)
  }
}

/// Bytes to upload to a destination.
package struct DeliveryUpload: Sendable {
  package enum Target: Sendable, Equatable {
    case put(SourceURL, headers: [HeaderField])
    /// - Parameter key: The key below the destination's prefix. It cannot lead out of the prefix.
    case profile(String, key: String)

    /// The name that clients see.
    package var name: String {
      switch self {
      case .put(let url, _): url.authority
      case .profile(let name, _): name
      }
    }
  }

  package var target: Target
  /// The owner of the job; nil for the service itself.
  package var owner: Owner?
  package var content: StoredBytes
  /// The digest of the bytes.
  package var digest: ImageDigest
  /// The media type of the bytes.
  package var contentType: String

  package init(
    to target: Target, _ content: StoredBytes, digest: ImageDigest, contentType: String
  ) {
    (self.target, self.content) = (target, content)
    (self.digest, self.contentType) = (digest, contentType)
  }
}

/// Uploads bytes to destinations.
package protocol ImageDestinations: Sendable {
  /// Stores the bytes at the destination and replaces an existing object. Makes up to three attempts after
  /// transient errors.
  ///
  /// - Returns: The entity tag that the receiver returned, if any.
  /// - Throws: `.cancelled` if the calling task is cancelled.
  func deliver(_ parcel: DeliveryUpload) async throws(DeliveryError) -> String?
}
