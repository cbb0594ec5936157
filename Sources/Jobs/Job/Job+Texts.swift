// Approximate memory of a job's variable-length parts, in bytes. Almost zero for most jobs, about 200,000 for
// the longest valid ones. Memory limits use these numbers, so every member that can be long must be counted
// here.

extension Job {
  /// Bytes of all texts and arrays.
  package var textBytes: Int { submission.textBytes + resultBytes }

  /// Bytes of the texts that the job does not share with other lines of its batch.
  package var ownTextBytes: Int {
    submission.textBytes(beyond: submission.defaults?.submission) + resultBytes
  }

  /// Bytes of the texts that clients see.
  var visibleBytes: Int { submission.source.textBytes + resultBytes }

  /// Bytes of all texts except the submission's.
  private var resultBytes: Int {
    var bytes = tags.reduce(0) { $0 + 16 + $1.utf8.count }
    for delivered in deliveries { bytes += delivered.textBytes }
    if let image { bytes += (image.url?.textBytes ?? 0) + 256 * image.variants.count }
    // The description contains all texts of the failure.
    for reason in [failure, lastFailure] { bytes += reason?.description.utf8.count ?? 0 }
    return bytes
  }
}

extension Submission {
  /// Bytes of all texts and arrays.
  var textBytes: Int { textBytes(beyond: nil) }

  /// Bytes of the texts and arrays that differ from the defaults.
  func textBytes(beyond defaults: Submission?) -> Int {
    func bytes<Value: Equatable>(
      _ path: KeyPath<Submission, Value>, _ count: (Value) -> Int
    ) -> Int {
      let value = self[keyPath: path]
      return value == defaults?[keyPath: path] ? 0 : count(value)
    }
    var sum = source.textBytes
    sum += bytes(\.headers) { $0.textBytes }
    sum += bytes(\.cacheKey) { $0?.utf8.count ?? 0 }
    sum += bytes(\.alternatives) { $0.reduce(0) { $0 + 64 + $1.textBytes } }
    sum += bytes(\.hosts) { $0.reduce(0) { $0 + 32 + $1.given.utf8.count + $1.one.utf8.count } }
    sum += bytes(\.variants) { $0.reduce(0) { $0 + 128 + $1.name.utf8.count } }
    sum += bytes(\.deliveries) { $0.reduce(0) { $0 + $1.textBytes } }
    return sum + bytes(\.webhook) { $0?.url.textBytes ?? 0 }
  }
}

extension SharedDefaults {
  /// Approximate memory of the defaults, in bytes: the members, and the encoded record if there is one.
  package var memoryBytes: Int { 1_024 + submission.textBytes + tagBytes + recordBytes }
}

extension Source {
  fileprivate var textBytes: Int {
    switch self {
    case .url(let url, let lowData): url.textBytes + (lowData?.textBytes ?? 0)
    case .local(let name): name.utf8.count
    case .captured(_, _, let contentType): contentType.utf8.count
    }
  }
}

extension DeliveryRequest {
  fileprivate var textBytes: Int {
    let place =
      switch target {
      case .put(let url, let headers): url.textBytes + headers.textBytes
      case .profile(let name, let key): name.utf8.count + key.template.utf8.count
      }
    return 128 + place + (variant?.utf8.count ?? 0)
  }
}

extension Delivered {
  fileprivate var textBytes: Int {
    [destination, url, key, variant, entityTag].reduce(128) { $0 + ($1?.utf8.count ?? 0) }
  }
}

extension [HeaderField] {
  fileprivate var textBytes: Int {
    reduce(0) { $0 + 32 + $1.name.utf8.count + $1.value.utf8.count }
  }
}

extension SourceURL {
  fileprivate var textBytes: Int { host.utf8.count + pathAndQuery.utf8.count }
}
