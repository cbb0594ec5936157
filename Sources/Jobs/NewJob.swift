/// A job to submit.
public struct NewJob: Sendable, Equatable {
  /// What to obtain and how.
  public var submission: Submission
  /// How soon its turn comes.
  public var priority: Priority
  /// The owner's labels.
  public var tags: [String]

  /// A job to submit.
  public init(submission: Submission, priority: Priority = .normal, tags: [String] = []) {
    self.submission = submission
    self.priority = priority
    self.tags = tags
  }

  /// What is kept of it, about, in bytes: as much for each of those that were made alike.
  package var keptBytes: Int { submission.keptBytes + tags.reduce(0) { $0 + $1.utf8.count } }
}

extension Submission {
  fileprivate var keptBytes: Int {
    var bytes = 256 + headers.keptBytes + (cacheKey?.utf8.count ?? 0)
    switch source {
    case .url(let url, let lowData): bytes += url.keptBytes + (lowData?.keptBytes ?? 0)
    case .local(let name): bytes += name.utf8.count
    case .captured(_, _, let contentType): bytes += contentType.utf8.count
    }
    for url in alternatives { bytes += url.keptBytes }
    for delivery in deliveries { bytes += delivery.keptBytes }
    return bytes + (webhook?.url.keptBytes ?? 0) + 128 * variants.count
  }
}

extension DeliveryRequest {
  fileprivate var keptBytes: Int {
    switch target {
    case .put(let url, let headers): url.keptBytes + headers.keptBytes
    case .profile(let name, let key): name.utf8.count + key.template.utf8.count
    }
  }
}

extension [HeaderField] {
  fileprivate var keptBytes: Int { reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count } }
}

extension SourceURL {
  fileprivate var keptBytes: Int { 16 + host.utf8.count + pathAndQuery.utf8.count }
}
