/// A place that a job's image, or a variant of it, is brought to before the job's success is told.
public struct DeliveryRequest: Sendable, Equatable, Codable {
  /// The most of one job.
  public static let most = 4

  /// Where to.
  public enum Target: Sendable, Equatable, Codable {
    /// A URL that was signed for it, with the fields that it was signed with.
    case put(SourceURL, headers: [HeaderField])
    /// A destination of the configuration, by its name.
    case profile(String, key: DeliveryKey)
  }

  /// Where to.
  public var target: Target
  /// The variant of that name; nil: the original.
  public var variant: String?

  /// Something to be brought somewhere.
  public init(_ target: Target, variant: String?) {
    (self.target, self.variant) = (target, variant)
  }
}

/// Something that was brought somewhere.
public struct Delivered: Sendable, Equatable, Codable {
  /// The destination's name; nil where it went to a URL.
  public var destination: String?
  /// That URL without its query, which may hold secrets.
  public var url: String?
  /// What it is called there.
  public var key: String?
  /// The variant of that name; nil: the original.
  public var variant: String?
  /// How many bytes.
  public var bytes: Int
  /// What the receiver calls its version.
  public var entityTag: String?

  /// It was brought there.
  public init(_ request: DeliveryRequest, key: String?, bytes: Int, entityTag: String?) {
    switch request.target {
    case .put(let url, _):
      self.url = url.origin + url.pathAndQuery.prefix { $0 != "?" }
    case .profile(let name, _): destination = name
    }
    (variant, self.key, self.bytes, self.entityTag) = (request.variant, key, bytes, entityTag)
  }
}

/// Bytes on their way to a destination.
public struct Parcel: Sendable {
  /// Where to.
  public enum Target: Sendable, Equatable {
    case put(SourceURL, headers: [HeaderField])
    /// - Parameter key: below the destination's prefix, which it can't leave.
    case profile(String, key: String)

    /// What clients know it by.
    public var name: String {
      switch self {
      case .put(let url, _): url.authority
      case .profile(let name, _): name
      }
    }
  }

  /// Where to.
  public var target: Target
  /// For whom; nil: for the service itself.
  public var owner: Owner?
  /// The bytes.
  public var content: StoredBytes
  /// Of the bytes.
  public var digest: ImageDigest
  /// What they are.
  public var contentType: String

  /// Bytes to be brought somewhere.
  public init(
    to target: Target, _ content: StoredBytes, digest: ImageDigest, contentType: String
  ) {
    (self.target, self.content) = (target, content)
    (self.digest, self.contentType) = (digest, contentType)
  }
}

/// Brings bytes to where clients want them.
public protocol ImageDestinations: Sendable {
  /// Stores them there in the place of what there was, in three tries where that may help.
  ///
  /// - Returns: the entity tag that the receiver gave them, if it did.
  /// - Throws: `.cancelled` when the calling task is cancelled.
  func deliver(_ parcel: Parcel) async throws(DeliveryError) -> String?
}

/// Why something was not brought to where it was to go. Nothing of what was sent, and no credential, is in it.
public enum DeliveryError: Error, Sendable, Equatable, Codable {
  /// It answered with an error: its status and S3's word for it, where there was one.
  case refused(to: String, status: Int, code: String?)
  /// No answer, or it may not be asked.
  case unreachable(to: String, FetchError)
  /// It stored other bytes than it was sent.
  case differs(to: String)
  /// There is no destination of that name any more.
  case unknown(to: String)
  /// The operator's credentials are not there.
  case noCredentials(to: String)
  /// The key would have more bytes than one may.
  case longKey(to: String)
  /// The bytes can't be read.
  case unreadable(to: String)
  /// The calling task was cancelled.
  case cancelled

  /// Whether the same may succeed in a moment, by the answer's status alone.
  package var isPassing: Bool {
    switch self {
    case .refused(_, let status, _): TransientStatus.contains(status)
    case .unreachable(_, .blocked), .unreachable(_, .badHost), .unreachable(_, .cancelled): false
    case .unreachable: true
    case .differs, .unknown, .noCredentials, .longKey, .unreadable, .cancelled: false
    }
  }
}
