// Approximate memory of a job's variable-length parts, in bytes. Almost zero for most jobs, about 200,000 for
// the longest valid ones. Memory limits use these numbers.

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
    let ownHosts = hosts == defaults?.hosts ? [] : hosts
    let hostBytes = ownHosts.reduce(0) { $0 + 32 + $1.given.utf8.count + $1.one.utf8.count }
    return JobOption.members.reduce(source.textBytes + hostBytes) {
      $0 + $1.member.textBytes(self, defaults)
    }
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

extension Optional: OptionValue where Wrapped: OptionValue {
  var textBytes: Int { self?.textBytes ?? 0 }
}

extension Array: OptionValue where Element: OptionValue {
  var textBytes: Int { reduce(count * MemoryLayout<Element>.stride) { $0 + $1.textBytes } }
}

extension Bool: OptionValue {
  var textBytes: Int { 0 }
}

extension Int: OptionValue {
  var textBytes: Int { 0 }
}

extension Duration: OptionValue {
  var textBytes: Int { 0 }
}

extension String: OptionValue {
  var textBytes: Int { utf8.count }
}

extension CacheMode: OptionValue {
  var textBytes: Int { 0 }
}

extension ImageDigest: OptionValue {
  var textBytes: Int { bytes.count }
}

extension VariantRequest: OptionValue {
  var textBytes: Int { name.utf8.count }
}

extension Webhook: OptionValue {
  var textBytes: Int { url.textBytes }
}

extension DeliveryRequest: OptionValue {
  var textBytes: Int {
    let place =
      switch target {
      case .put(let url, let headers): url.textBytes + headers.textBytes
      case .profile(let name, let key): name.utf8.count + key.template.utf8.count
      }
    return place + (variant?.utf8.count ?? 0)
  }
}

extension Delivered {
  fileprivate var textBytes: Int {
    [destination, url, key, variant, entityTag].reduce(128) { $0 + ($1?.utf8.count ?? 0) }
  }
}

extension HeaderField: OptionValue {
  var textBytes: Int { name.utf8.count + value.utf8.count }
}

extension SourceURL: OptionValue {
  var textBytes: Int { host.utf8.count + pathAndQuery.utf8.count }
}
