internal import Jobs

/// Makes lines of an upload into jobs, or says why there is none.
struct LineReader {
  /// What has been read and not yet been taken, before ``lines``.
  private var parts: [NewLines] = []
  private var lines: NewLines
  /// Lines that came over uploads before this one.
  private let start: Int
  /// Whether lines came beyond the most that a batch may have: they are passed over.
  private(set) var isOverfull = false
  private var decoder: SubmissionDecoder
  /// What each job is like unless its line says otherwise.
  private var template: NewJob { didSet { defaults = nil } }
  /// The template as stores keep it, made with the first job that needs it. The inner nil means that it is too short.
  private var defaults: SharedDefaults??
  /// Labels that each job has besides its own.
  private let tags: [String]
  private let mostLines: Int

  /// - Parameters:
  ///   - template: with any source.
  ///   - offset: lines that came before.
  ///   - mostLines: of the batch.
  init(
    _ decoder: SubmissionDecoder, template: NewJob, tags: [String], after offset: Int,
    mostLines: Int
  ) {
    (self.decoder, self.template, self.tags) = (decoder, template, tags)
    (self.mostLines, start) = (mostLines, offset)
    lines = NewLines(after: offset)
  }

  /// Lines that came by now, over all uploads.
  private var received: Int { lines.offset + lines.count }

  /// Returns the lines read since the last call, in parts of about the size of one transaction.
  mutating func take() -> [NewLines] {
    defer { (parts, lines) = ([], NewLines(after: received)) }
    return parts + [lines]
  }

  /// Has the lines from here on be like that unless they say otherwise.
  mutating func use(defaults members: [JSONValue.Member], at root: Location.Root) throws(Problem) {
    template = decoder.template(from: members, at: root, over: template)
    try decoder.mistakes.check()
  }

  /// Has the batch's end be told, and those of the lines from here on that it asks for unless they say otherwise.
  mutating func use(_ webhook: Webhook) {
    lines.webhook = webhook
    share(webhook)
  }

  /// Has the ends of jobs be told that a batch's webhook asks for, where nothing says otherwise.
  mutating func share(_ webhook: Webhook) {
    let ends = WebhookEvent.jobEnds.intersection(webhook.events)
    guard template.submission.webhook == nil, !ends.isEmpty else { return }
    template.submission.webhook = Webhook(url: webhook.url, events: ends)
  }

  /// Takes members beside the jobs of a list in JSON: those before them, or one behind them.
  mutating func use(members: [JSONValue.Member], at root: Location.Root) throws(Problem) {
    for member in members where member.name == "defaults" {
      guard case .object(let defaults) = member.value else {
        throw Problem(.invalidOption, "The defaults are an object.")
      }
      try use(defaults: defaults, at: root)
    }
    for member in members where member.name == "notify" {
      let webhook = decoder.batchWebhook(
        member.value, at: Location(root: root, member: member.name))
      try decoder.mistakes.check()
      guard let webhook else { continue }
      guard received == start || WebhookEvent.jobEnds.isDisjoint(with: webhook.events) else {
        throw Problem(
          .invalidOption,
          "A notify that names ends of jobs has to come before jobs: they are made as they come.")
      }
      use(webhook)
    }
  }

  /// Counts a line, where there may be one more.
  private mutating func count() -> Bool {
    isOverfull = isOverfull || received >= mostLines
    guard !isOverfull else { return false }
    if lines.bytes >= BatchWriter.most.bytes {
      parts.append(lines)
      lines = NewLines(after: received)
    }
    lines.count += 1
    return true
  }

  /// Lines that are nothing: empty, a comment, or of a record that began before.
  mutating func skip(_ count: Int = 1) { for _ in 0..<count { _ = self.count() } }

  /// A line that is longer than any may be.
  mutating func rejectLong() {
    reject(url: nil, .bodyTooLarge, "It has more than \(LineSplitter.longest) bytes.")
  }

  /// A line that is a URL.
  mutating func add(url text: String) {
    let url = decoder.url(.string(text), at: Location(root: .body(index: nil), member: "url"))
    guard let url else { return rejectMistakes(url: text) }
    var job = template
    job.submission.source = .url(url, lowData: nil)
    add(job)
  }

  /// A line that is JSON.
  mutating func add(json line: ArraySlice<UInt8>) {
    let value: JSONValue
    do { value = try JSONParser.parse(Array(line), maxValues: Self.maxValues) } catch {
      return reject(url: nil, .malformedJSON, Problem(error).detail)
    }
    add(value)
  }

  /// The longest legal job has some 120 values.
  static let maxValues = 320

  /// A line that is a job, or a URL.
  mutating func add(_ value: JSONValue) {
    switch value {
    case .string(let text): add(url: text)
    case .object(let members):
      let job = decoder.job(from: members, over: template)
      guard let job, decoder.mistakes.isEmpty else {
        return rejectMistakes(url: members.first { $0.name == "url" }?.value.string)
      }
      add(job)
    default: reject(url: nil, .invalidOption, "A line is a job or a URL; this is \(value.kind).")
    }
  }

  private mutating func add(_ job: NewJob) {
    guard count() else { return }
    let job = labelled(job, by: sharedDefaults())
    lines.bytes += job.keptBytes
    lines.jobs.append(NewLines.Job(line: received, job: job))
  }

  private func labelled(_ job: NewJob, by defaults: SharedDefaults?) -> NewJob {
    var job = job
    job.tags += tags.filter { !job.tags.contains(tag: $0) }
    job.submission.defaults = defaults
    return job
  }

  private mutating func sharedDefaults() -> SharedDefaults? {
    if let defaults { return defaults }
    let made = SharedDefaults(of: labelled(template, by: nil))
    defaults = .some(made)
    return made
  }

  private mutating func rejectMistakes(url: String?) {
    let mistake = decoder.mistakes.errors.first
    decoder.mistakes = Mistakes()
    var detail = mistake?.detail ?? "It is no job."
    if case .pointer(let pointer)? = mistake?.place, pointer != "/url" {
      detail = "\(pointer): \(detail)"
    }
    reject(url: url, mistake?.code ?? .invalidOption, detail)
  }

  mutating func reject(url: String?, _ code: RequestCode, _ detail: String) {
    guard count() else { return }
    // As long as any that is taken.
    let told = url.map { $0.prefix(bytes: SourceURL.maxLength) }
    let line = RejectedLine(line: received, url: told, code: code.rawValue, detail: detail)
    lines.bytes += line.keptBytes
    lines.rejected.append(line)
  }
}
