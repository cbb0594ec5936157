// What clients and origins worded, in bytes of memory, about: hardly any in most jobs, two hundred thousand in the longest
// legal ones. Whoever bounds memory by jobs goes by it, so each member that may be long is counted here.

extension Job {
  /// Of all its texts and lists.
  package var textBytes: Int { submission.textBytes + resultBytes }

  /// Of those that the lines of its batch do not share.
  package var ownTextBytes: Int {
    submission.textBytes(beyond: submission.defaults?.submission) + resultBytes
  }

  /// Of those that clients are told.
  var toldBytes: Int { submission.source.textBytes + resultBytes }

  /// Of all but the submission.
  private var resultBytes: Int {
    var bytes = tags.reduce(0) { $0 + 16 + $1.utf8.count }
    for delivered in deliveries { bytes += delivered.textBytes }
    if let image { bytes += (image.url?.textBytes ?? 0) + 256 * image.variants.count }
    // Its words have all that is in it.
    for reason in [failure, lastFailure] { bytes += reason?.description.utf8.count ?? 0 }
    return bytes
  }
}

extension Submission {
  /// Of all its texts and lists.
  var textBytes: Int { textBytes(beyond: nil) }

  /// Bytes of its texts and lists, without those that equal the defaults.
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
  /// Bytes of memory that they take, about: the members, and their record where it was encoded.
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
