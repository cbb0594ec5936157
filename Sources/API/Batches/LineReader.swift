internal import Jobs

/// Makes lines of an upload into jobs, or says why there is none.
struct LineReader {
  /// What has been read and not yet been taken, before ``lines``.
  private var parts: [NewLines] = []
  private var lines: NewLines
  /// Lines that came over uploads before this one.
  private var start: Int
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
  /// ``Batch/content`` after the lines that were read; nil: it stays as it is.
  private var content: BatchContent?
  /// The members of the content next to its items.
  private var context = BatchContent.Context()
  /// The item that the next line that is counted is made of.
  private var item: [UInt8]?
  private var comparison: BatchContentComparison?

  /// - Parameters:
  ///   - template: with any source.
  ///   - offset: lines that came before.
  ///   - mostLines: of the batch.
  ///   - content: what was received before.
  init(
    _ decoder: SubmissionDecoder, template: NewJob, tags: [String], after offset: Int,
    mostLines: Int, content: BatchContent? = nil
  ) {
    // Members may have been received without an item. The upload that continues the batch repeats them.
    self.content = content.map { $0.items == 0 ? BatchContent() : $0 }
    (self.decoder, self.template, self.tags) = (decoder, template, tags)
    self.decoder.mistakes = Self.noMistakes
    (self.mostLines, start) = (mostLines, offset)
    lines = NewLines(after: offset)
  }

  /// Lines that came by now, over all uploads.
  private var received: Int { lines.offset + lines.count }

  /// Returns the lines read since the last call, in parts of about the size of one transaction.
  mutating func take() -> [NewLines] {
    defer { (parts, lines) = ([], NewLines(after: received)) }
    lines.content = content
    return parts + [lines]
  }

  /// Only compares what is read with the content of a batch: no line becomes a job.
  mutating func compare(with content: BatchContent) {
    (self.content, comparison) = (BatchContent(), BatchContentComparison(with: content))
    (start, lines) = (0, NewLines(after: 0))
  }

  /// Whether the content that is read agrees with the batch's; nil while more has to be read.
  var verdict: Bool? { isOverfull ? comparison?.finalVerdict : comparison?.verdict }
  /// The same once the content has ended.
  var finalVerdict: Bool? { comparison?.finalVerdict }

  /// Notes what the next line is made of. Every format calls it before it adds, rejects or skips the line.
  mutating func begin(item bytes: some Sequence<UInt8>) {
    if content != nil { item = Array(bytes) }
  }

  /// Notes a part of the content that applies to lines: to those that follow, or to the whole batch.
  mutating func note(_ name: String, _ value: [UInt8]) {
    guard let before = content else { return }
    context.add(name, value)
    // An upload that continues a batch repeats what its beginning said.
    guard before.items == 0 || received > start else { return }
    content?.addMember(in: context)
    compare()
  }

  private mutating func compare() {
    guard let content else { return }
    comparison?.compare(content)
  }

  /// The content has ended, and no other upload continues it.
  mutating func completeContent() { content?.complete() }

  /// Has the lines from here on be like that unless they say otherwise.
  mutating func use(defaults members: [JSONValue.Member], at root: Location.Root) throws(Problem) {
    guard comparison == nil else { return }
    decoder.mistakes = Mistakes()
    defer { decoder.mistakes = Self.noMistakes }
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
    guard comparison == nil else { return }
    for member in members where member.name == "defaults" {
      guard case .object(let defaults) = member.value else {
        throw Problem(.invalidOption, "The defaults are an object.")
      }
      try use(defaults: defaults, at: root)
    }
    for member in members where member.name == "notify" {
      decoder.mistakes = Mistakes()
      defer { decoder.mistakes = Self.noMistakes }
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
      lines.content = content
      parts.append(lines)
      lines = NewLines(after: received)
    }
    lines.count += 1
    if let item {
      content?.add(item, in: context)
      compare()
    }
    item = nil
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
    guard comparison == nil else { return skip() }
    let url = decoder.url(.string(text), at: Location(root: .body(index: nil), member: "url"))
    guard let url else { return rejectMistakes(url: text) }
    var job = template
    job.submission.source = .url(url, lowData: nil)
    add(job)
  }

  /// A line that is JSON.
  mutating func add(json line: ArraySlice<UInt8>) {
    guard comparison == nil else { return skip() }
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
    guard comparison == nil else { return skip() }
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

  /// A rejected line reports its first mistake.
  private static let noMistakes = Mistakes(most: 1)

  private mutating func rejectMistakes(url: String?) {
    let mistake = decoder.mistakes.errors.first
    decoder.mistakes = Self.noMistakes
    var detail = mistake?.detail ?? "It is no job."
    if case .pointer(let pointer)? = mistake?.place, pointer != "/url" {
      detail = "\(pointer): \(detail)"
    }
    reject(url: url, mistake?.code ?? .invalidOption, detail)
  }

  mutating func reject(url: String?, _ code: RequestCode, _ detail: String) {
    guard count(), comparison == nil else { return }
    // As long as any that is taken.
    let told = url.map { $0.prefix(bytes: SourceURL.maxLength) }
    let line = RejectedLine(line: received, url: told, code: code.rawValue, detail: detail)
    lines.bytes += line.keptBytes
    lines.rejected.append(line)
  }
}
