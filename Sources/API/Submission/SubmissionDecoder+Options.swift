internal import FoundationEssentials
internal import HTTP
internal import Jobs

/// Decodes the members of a job other than its source.
extension SubmissionDecoder {
  mutating func set(_ member: JSONValue.Member, of job: inout NewJob, at location: Location) {
    guard let option = JobOption(rawValue: member.name),
      option.row.kinds.contains(job.submission.source.kind)
    else { return addMistake(location, noMember(member.name)) }
    let value = member.value
    switch option {
    case .url, .lowDataURL, .local: break  // `source(of:at:)` decodes them.
    case .alternatives: job.submission.alternatives = alternatives(value, at: location)
    case .cacheKey: job.submission.cacheKey = cacheKey(value, at: location)
    case .headers: job.submission.headers = headers(value, at: location)
    case .cache: cacheMode(value, at: location).map { job.submission.cacheMode = $0 }
    case .cacheTTL: job.submission.cacheTTL = lifetime(value, at: location)
    case .integrity: job.submission.integrity = integrity(value, at: location)
    case .priority: priority(value, at: location).map { job.priority = $0 }
    case .timeout: job.submission.timeout = duration(value, upTo: limits.timeout, at: location)
    case .maxBytes: job.submission.maxBytes = int(value, 1...limits.maxBytes, at: location)
    case .maxPixels: job.submission.maxPixels = int(value, 1...limits.maxPixels, at: location)
    case .maxAttempts:
      job.submission.maxAttempts = int(value, RetryPolicy.attemptBounds, at: location)
    case .retention:
      job.submission.retention = duration(value, upTo: limits.maxRetention, at: location)
    case .tags: tags(value, at: location).map { job.tags = $0 }
    case .variants: job.submission.variants = variants(value, at: location)
    case .original: job.submission.dropsOriginal = dropsOriginal(value, at: location)
    case .notify: job.submission.webhook = webhook(value, of: WebhookEvent.jobEnds, at: location)
    case .deliver: job.submission.deliveries = deliveries(value, at: location)
    }
  }

  /// Checks `original`. Call it after all members are set.
  mutating func checkOriginal(of job: NewJob, at location: Location) {
    guard job.submission.dropsOriginal, job.submission.variants.isEmpty else { return }
    addMistake(location, "With drop the job must have at least one variant.")
  }

  private mutating func dropsOriginal(_ value: JSONValue, at location: Location) -> Bool {
    if let word = value.string, ["keep", "drop"].contains(word) { return word == "drop" }
    addMistake(location, "Must be keep or drop.")
    return false
  }

  private func noMember(_ name: String) -> String {
    if VariantOption(rawValue: name) != nil {
      return
        "A job has no such member. Put \(name) into an element of variants, or into the query of GET /jobs/{id}/image."
    }
    // A member of another kind of source is not a spelling mistake, so it gets no suggestion.
    let isOption = JobOption(rawValue: name) != nil
    let hint = isOption ? "" : mistakes.hint(for: name, among: JobOption.allCases.map(\.rawValue))
    return "A job with this source has no such member.\(hint)"
  }

  /// A hundred years. RFC 9111 section 1.2.2 requires support for 68 years only.
  private static let longestTTL = 3_155_760_000.0

  /// Freshness has whole seconds (RFC 9111 section 1.2.2). Fractions are rounded up, because 0 means no freshness at
  /// all.
  private mutating func lifetime(_ value: JSONValue, at location: Location) -> Int? {
    if let seconds = value.double, 0...Self.longestTTL ~= seconds {
      return Int(seconds.rounded(.up))
    }
    addMistake(location, "Must be a number of seconds from 0 to \(Int(Self.longestTTL)).")
    return nil
  }

  mutating func priority(_ value: JSONValue, at location: Location) -> Priority? {
    guard let priority = value.string.flatMap(Priority.init(word:)) else {
      let words = Priority.allCases.map(\.word).joined(separator: ", ")
      addMistake(location, "Must be one of \(words).")
      return nil
    }
    if let maxPriority, priority > maxPriority {
      addMistake(location, "Must be at most \(maxPriority.word) with this token.")
      return nil
    }
    return priority
  }

  mutating func tags(_ value: JSONValue, at location: Location) -> [String]? {
    guard case .array(let elements) = value, elements.count <= 16 else {
      addMistake(location, "Must be an array of at most 16 strings.")
      return nil
    }
    var tags: [String] = []
    for (index, element) in elements.enumerated() {
      if let tag = element.string, 1...64 ~= tag.unicodeScalars.count, !tag.hasControls {
        tags.append(tag)
      } else {
        let detail = "A tag must have 1 to 64 characters and no control characters."
        if case .query = location.root {
          addMistake(location, detail)
        } else {
          addMistake(location.child("\(index)"), detail)
        }
      }
    }
    return tags
  }

  private mutating func integrity(_ value: JSONValue, at location: Location) -> ImageDigest? {
    if let text = value.string, text.hasPrefix("sha256-"), text.utf8.count == 51,
      let bytes = Data(base64Encoded: String(text.dropFirst(7))),
      let digest = ImageDigest(bytes: bytes)
    {
      return digest
    }
    addMistake(location, "Must be sha256- followed by the digest in base64.")
    return nil
  }

  private mutating func cacheMode(_ value: JSONValue, at location: Location) -> CacheMode? {
    if let mode = value.string.flatMap(CacheMode.init) { return mode }
    let words = CacheMode.allCases.map(\.rawValue).joined(separator: ", ")
    addMistake(location, "Must be one of \(words).")
    return nil
  }

  private mutating func cacheKey(_ value: JSONValue, at location: Location) -> String? {
    if let key = value.string, 1...2048 ~= key.unicodeScalars.count, !key.hasControls { return key }
    addMistake(location, "Must have 1 to 2,048 characters and no control characters.")
    return nil
  }

  private mutating func alternatives(_ value: JSONValue, at location: Location) -> [SourceURL] {
    guard case .array(let elements) = value, elements.count <= 8 else {
      addMistake(location, "Must be an array of at most 8 URLs.")
      return []
    }
    return elements.enumerated().compactMap { index, element in
      url(element, at: location.child("\(index)"))
    }
  }

  private mutating func int(
    _ value: JSONValue, _ range: ClosedRange<Int>, at location: Location
  ) -> Int? {
    if let int = value.int, range ~= int { return int }
    addMistake(location, "Must be an integer from \(range.lowerBound) to \(range.upperBound).")
    return nil
  }

  private mutating func duration(
    _ value: JSONValue, upTo limit: Duration, at location: Location
  ) -> Duration? {
    if let seconds = value.double, 0.001...limit.inSeconds ~= seconds { return .seconds(seconds) }
    addMistake(location, "Must be a number of seconds from 0.001 to \(limit.inSeconds).")
    return nil
  }

  mutating func addMistake(_ location: Location, _ detail: String) {
    mistakes.add(location, .invalidOption, detail)
  }
}

/// Decodes `headers`: additional header fields of the request to the origin.
extension SubmissionDecoder {
  /// The maximum of all names and values of one job together.
  private static let maxHeaderBytes = 8192
  private static let maxHeaderFields = 64

  mutating func headers(_ value: JSONValue, at location: Location) -> [HeaderField] {
    guard case .object(let members) = value, members.count <= Self.maxHeaderFields else {
      addMistake(location, "Must be an object of at most \(Self.maxHeaderFields) header fields.")
      return []
    }
    var fields: [HeaderField] = []
    var names: Set<String> = []
    for member in members {
      let location = location.child(member.name)
      guard let field = field(member, at: location) else { continue }
      if names.insert(field.name.lowercased()).inserted {
        fields.append(field)
      } else {
        addMistake(location, "This field occurs twice; names are not case-sensitive.")
      }
    }
    if fields.reduce(0, { $0 + $1.name.utf8.count + $1.value.utf8.count }) > Self.maxHeaderBytes {
      addMistake(location, "The fields have more than \(Self.maxHeaderBytes) bytes in total.")
    }
    return fields
  }

  private mutating func field(_ member: JSONValue.Member, at location: Location) -> HeaderField? {
    guard !member.name.isEmpty, member.name.utf8.allSatisfy({ $0.isTokenCharacter }) else {
      addMistake(location, "Must be the name of a header field.")
      return nil
    }
    guard !Self.isReserved(member.name.lowercased()) else {
      addMistake(location, "This field is set by the service. Remove it.")
      return nil
    }
    guard let text = member.value.string, text.utf8.allSatisfy(Self.isFieldByte) else {
      addMistake(location, "Must be a string without line breaks and control characters.")
      return nil
    }
    let spaces: Set<UInt8> = [0x20, 0x09]
    var value = text.utf8.drop { spaces.contains($0) }
    while let last = value.last, spaces.contains(last) { value.removeLast() }
    return HeaderField(name: member.name, value: String(Substring(value)))
  }

  private static func isFieldByte(_ byte: UInt8) -> Bool {
    byte == 0x09 || (byte >= 0x20 && byte != 0x7F)
  }

  /// Whether the field is reserved: it frames the message, belongs to one connection (RFC 9110 section 7.6.1), or
  /// requests something other than the complete image.
  private static func isReserved(_ name: String) -> Bool {
    switch name {
    case "accept-encoding", "host", "content-length", "transfer-encoding", "te", "trailer",
      "expect", "connection",
      "keep-alive", "upgrade", "http2-settings", "range", "if-range", "if-match", "if-none-match",
      "if-modified-since", "if-unmodified-since":
      true
    default: name.hasPrefix("proxy-")
    }
  }
}

extension JobOption {
  /// The options in a query, as members of a job.
  static func members(of query: inout Query, for kind: Kinds) -> [JSONValue.Member] {
    all(of: kind).compactMap { option in
      guard option.row.form == .list else {
        return query.value(option.rawValue).map { option.member(in: $0) }
      }
      let texts = query.values(option.rawValue)
      return texts.isEmpty
        ? nil : .init(name: option.rawValue, value: .array(texts.map { .string($0) }))
    }
  }

  /// Converts a text, such as a cell of a CSV file, to a member of a job. A text that does not have the option's form
  /// becomes a string, which ``SubmissionDecoder`` refuses.
  func member(in text: String) -> JSONValue.Member {
    func json() -> JSONValue? {
      let value = try? JSONParser.parse(Array(text.utf8), maxValues: BatchLineReader.maxValues)
      switch value {
      case .array, .object: return value
      default: return nil
      }
    }
    let value: JSONValue? =
      switch row.form {
      case .text: nil
      case .number: JSONValue(numberIn: text)
      case .json: json()
      case .list: json() ?? .array([.string(text)])
      }
    return .init(name: rawValue, value: value ?? .string(text))
  }
}
