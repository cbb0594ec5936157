internal import Jobs

/// Decodes a submission into jobs, and collects every mistake.
struct SubmissionDecoder {
  let limits: APIConfiguration.Limits
  let hasLocalRoot: Bool
  /// The formats that variants can be written in.
  let formats: Set<OutputFormat>
  /// Whether webhook URLs may use `http`.
  let allowsPlainWebhooks: Bool
  /// The names of the destinations that the client may use.
  var destinations: Set<String>
  /// Whether the request has `Save-Data: on`.
  let savesData: Bool
  /// The highest priority that the client may use; nil: any.
  var maxPriority: Priority?
  /// The mistakes found so far.
  var mistakes = RequestErrors()

  /// The priority of a job that sets none.
  var defaultPriority: Priority { min(.normal, maxPriority ?? .normal) }

  /// Decodes an object as one job, an array as several. Stops when no more mistakes are collected.
  mutating func jobs(from body: JSONValue) -> [NewJob] {
    switch body {
    case .object(let members):
      return [job(from: members, at: .body(index: nil))].compactMap { $0 }
    case .array([]):
      mistakes.add(.pointer(""), .invalidOption, "The array must have at least one job.")
      return []
    case .array(let elements):
      var jobs: [NewJob] = []
      for (index, element) in elements.enumerated() {
        guard !mistakes.isFull else { break }
        if let job = job(from: element, index: index) { jobs.append(job) }
      }
      return jobs
    case .null, .bool, .number, .string:
      mistakes.add(
        .pointer(""), .invalidOption,
        "Must be an object (one job) or an array of jobs, not \(body.kind).")
      return []
    }
  }

  /// Decodes the job of an uploaded image, with options in the query.
  mutating func capturedJob(from query: inout Query, contentType: String) -> NewJob {
    let members = JobOption.members(of: &query, for: .upload)
    return capturedJob(from: members, contentType: contentType, at: .query)
  }

  /// Decodes the job of a `GET /image` from its query; nil if it has a mistake. The default priority is `high`, because
  /// a page waits for the image.
  mutating func viewedJob(from query: inout Query) -> NewJob? {
    var template = plainJob
    template.priority = .high
    var job = job(from: JobOption.members(of: &query, for: .view), at: .query, over: template)
    // The job must exist until the response is sent.
    if let retention = job?.submission.retention {
      job?.submission.retention = max(retention, min(.seconds(10), limits.maxRetention))
    }
    return job
  }

  /// Decodes the job of an uploaded image. The caller sets its source when the image has been received.
  mutating func capturedJob(
    from members: [JSONValue.Member], contentType: String, at root: Location.Root
  ) -> NewJob {
    let nothing = CapturedImage(digest: ImageDigest(of: []), bytes: 0)
    let source = nothing.source(contentType: contentType)
    var job = NewJob(submission: Submission(source: source), priority: defaultPriority)
    job.submission.savesData = savesData
    set(members, of: &job, at: root)
    checkDeliveries(of: job, at: Location(root: root, member: "deliver"))
    return job
  }

  /// Decodes a line of a batch. Members that it does not have are taken from the template. Nil if it has a mistake.
  mutating func job(from members: [JSONValue.Member], over template: NewJob) -> NewJob? {
    job(from: members, at: .body(index: nil), over: template)
  }

  /// Decodes the defaults for the lines of a batch. The source of the result is a placeholder.
  /// - Parameter former: the earlier defaults; nil: none.
  mutating func template(
    from members: [JSONValue.Member], at root: Location.Root, over former: NewJob? = nil
  ) -> NewJob {
    var job = former ?? plainJob
    job.submission.savesData = savesData
    for member in members where Self.isSource(member) {
      mistakes.add(
        Location(root: root, member: member.name), .invalidOption,
        "Remove it: each line has its own source.")
    }
    set(members.filter { !Self.isSource($0) }, of: &job, at: root)
    return job
  }

  private mutating func job(from element: JSONValue, index: Int) -> NewJob? {
    guard case .object(let members) = element else {
      mistakes.add(
        .pointer("/\(index)"), .invalidOption, "A job must be an object, not \(element.kind).")
      return nil
    }
    return job(from: members, at: .body(index: index))
  }

  private mutating func job(
    from members: [JSONValue.Member], at root: Location.Root, over template: NewJob? = nil
  ) -> NewJob? {
    let source = source(of: members, at: root)
    // If the source is not valid, the other members are still decoded, so that all mistakes are reported at once. Which
    // members are allowed depends on the kind of source.
    let isLocal = members.contains { $0.name == "local" }
    var job = template ?? plainJob
    job.submission.source = source ?? (isLocal ? .local("") : Self.anyURL)
    job.submission.savesData = savesData
    set(members.filter { !Self.isSource($0) }, of: &job, at: root)
    checkDeliveries(of: job, at: Location(root: root, member: "deliver"))
    return source == nil ? nil : job
  }

  /// Sets members until no more mistakes are collected.
  private mutating func set(
    _ members: [JSONValue.Member], of job: inout NewJob, at root: Location.Root
  ) {
    for member in members {
      guard !mistakes.isFull else { return }
      set(member, of: &job, at: Location(root: root, member: member.name))
    }
    checkOriginal(of: job, at: Location(root: root, member: "original"))
  }

  /// A job with default values. Its source is a placeholder.
  private var plainJob: NewJob {
    NewJob(submission: Submission(source: Self.anyURL), priority: defaultPriority)
  }

  private static let anyURL = Source.url(SourceURL("http://localhost/")!, lowData: nil)  // legal

  private static func isSource(_ member: JSONValue.Member) -> Bool {
    JobOption(rawValue: member.name)?.isSource == true
  }
}

/// Decodes the source.
extension SubmissionDecoder {
  private mutating func source(of members: [JSONValue.Member], at root: Location.Root) -> Source? {
    func member(_ name: String) -> JSONValue? { members.first { $0.name == name }?.value }
    func location(_ name: String) -> Location { Location(root: root, member: name) }
    let low = member("low_data_url").map { url($0, at: location("low_data_url")) }
    if let local = member("local") {
      if member("url") != nil {
        mistakes.add(
          location("local"), .invalidOption, "Remove one: a job has either url or local.")
      }
      if low != nil {
        mistakes.add(
          location("low_data_url"), .invalidOption, "Remove it: only jobs with url have it.")
      }
      return localName(local, at: location("local")).map(Source.local)
    }
    guard let regular = member("url"), regular != .null else {
      let isViewed = if case .query = root { true } else { false }
      mistakes.add(
        location("url"), .missingURL,
        isViewed ? "url is missing." : "The source is missing: set url or local.")
      return nil
    }
    guard let regular = url(regular, at: location("url")) else { return nil }
    return .url(regular, lowData: low ?? nil)
  }

  mutating func url(_ value: JSONValue, at location: Location) -> SourceURL? {
    guard let text = value.string else {
      mistakes.add(location, .invalidURL, "A URL must be a string, not \(value.kind).")
      return nil
    }
    guard let url = SourceURL(text) else {
      // `GET /image` has no header fields for the origin, and webhook messages have fixed ones, so they get no such
      // hint.
      let isView = if case .query = location.root { true } else { false }
      let takesFields = !isView && location.member != "notify"
      let hint = " Send user and password as headers.Authorization."
      mistakes.add(
        location, .invalidURL,
        "Must be an absolute http or https URL of at most \(SourceURL.maxLength) bytes without a user name."
          + (takesFields && Self.hasUser(text) ? hint : ""))
      return nil
    }
    return url
  }

  /// Whether the URL has a user name or password.
  private static func hasUser(_ text: String) -> Bool {
    let slash = UInt8(ascii: "/")
    let scheme = text.utf8.prefix { $0 != slash }
    let authority = text.utf8.dropFirst(scheme.count).drop { $0 == slash }.prefix {
      ![slash, UInt8(ascii: "?"), UInt8(ascii: "#")].contains($0)
    }
    return scheme.last == UInt8(ascii: ":") && authority.contains(UInt8(ascii: "@"))
  }

  private mutating func localName(_ value: JSONValue, at location: Location) -> String? {
    guard hasLocalRoot else {
      mistakes.add(
        location, .invalidLocalName, "The service has no local images (sources.local_root).")
      return nil
    }
    guard let name = value.string, Self.isLocalName(name) else {
      mistakes.add(
        location, .invalidLocalName,
        "Must be a relative path below sources.local_root, without '.' and '..' segments.")
      return nil
    }
    return name
  }

  private static func isLocalName(_ name: String) -> Bool {
    guard 1...1024 ~= name.utf8.count, !name.utf8.contains(UInt8(ascii: "\\")), !name.hasControls
    else { return false }
    return name.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
      .allSatisfy { part in
        let part = Substring(part)
        return !part.isEmpty && part != "." && part != ".." && part.utf8.count <= 255
      }
  }
}

extension CapturedImage {
  func source(contentType: String) -> Source {
    .captured(digest, bytes: bytes, contentType: contentType)
  }
}

extension String {
  /// Whether the text has a control character (C0, DEL or C1).
  var hasControls: Bool {
    unicodeScalars.contains { $0.value < 0x20 || 0x7F..<0xA0 ~= $0.value }
  }
}
