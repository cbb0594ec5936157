internal import Executors
internal import Glibc
internal import Synchronization

/// Fetches a list of URLs through a service, so many at a time: memory holds those under way and no other.
///
/// Each is carried by a thread of its own from its submission to its file; there are never more threads than URLs.
public final class Run: Sendable {
  /// What to fetch, by whom, and where to put it.
  public struct Settings: Sendable {
    public var address: ServiceAddress
    /// In the order in which they are asked for.
    public var sources: [Source]
    public var output: Output
    /// How files in a folder are called; nil: by the last part of the URL's path.
    public var template: NameTemplate?
    /// Whether a URL whose file exists in the folder is left alone.
    public var skipsExisting = false
    public var options: ImageOptions
    /// Jobs under way at once.
    public var parallel: Int
    /// Whether only failures are told of.
    public var isQuiet: Bool
    /// Whether jobs are told of as JSON.
    public var isJSON = false
    /// All variables: `TERM`, `NO_COLOR` and the locale's count.
    public var environment: [String: String]

    public init(
      address: ServiceAddress, sources: [Source], output: Output,
      options: ImageOptions = ImageOptions(),
      parallel: Int = 32, isQuiet: Bool = false, environment: [String: String] = [:]
    ) {
      (self.address, self.sources, self.output) = (address, sources, output)
      (self.options, self.parallel, self.isQuiet) = (options, max(1, parallel), isQuiet)
      self.environment = environment
    }
  }

  /// What URLs come from.
  public enum Source: Sendable {
    case url(String)
    case list(URLList)
  }

  /// How it ended.
  public enum Ending: Sendable, Equatable {
    /// Each URL was tried.
    case complete(failed: Int)
    /// The command line says something that the service doesn't take.
    case usage(String)
    /// The user or the operator can mend it; in one line.
    case mistake(String)
    /// Whoever read our output has gone away.
    case outputClosed
    /// ``interrupt()``
    case interrupted
    /// The machine's fault.
    case fault(String)
  }

  private struct State {
    var threads = 0
    var started = 0
    var busy = 0
    var failed = 0
    var ending: Ending?
    var continuation: CheckedContinuation<Ending, Never>?
  }

  let settings: Settings
  let sources: Sources
  let stop = CancellationFlag()
  let board: ProgressDisplay?
  private let printer: Printer
  /// Where lists go to a service elsewhere as batches: their lines; nil where each URL is a job by itself.
  let lines: ListLines?
  let naming: Naming
  private let state = Mutex(State())

  /// Nothing is asked yet.
  public init(_ settings: Settings) {
    self.settings = settings
    let sources = Sources(settings.sources)
    self.sources = sources
    let hasBars = Self.hasBars(settings)
    board =
      hasBars
      ? ProgressDisplay(on: STDERR_FILENO, style: Style(environment: settings.environment)) {
        sources.total
      }
      : nil
    printer = Printer(
      hasBars: hasBars, isQuiet: settings.isQuiet, isJSON: settings.isJSON,
      givesImage: settings.output == .standardOutput)
    naming = Naming(
      settings.output, template: settings.template, skipsExisting: settings.skipsExisting,
      format: settings.options.format ?? settings.impliedFormat, variant: settings.options.query)
    let hasList = settings.sources.contains { if case .list = $0 { true } else { false } }
    lines = hasList && !settings.address.isOurs ? ListLines(stop: stop) : nil
  }

  private static func hasBars(_ settings: Settings) -> Bool {
    let term = settings.environment["TERM"] ?? ""
    // Where lines for programs go to the same terminal, bars would be drawn over them.
    let isShown = settings.isJSON && isatty(STDOUT_FILENO) == 1
    return isatty(STDERR_FILENO) == 1 && !settings.isQuiet && !isShown && term != "dumb"
      && !term.isEmpty
  }

  /// Fetches them all.
  public func run() async -> Ending {
    // A reader of ours that goes away shall be an error of the write, not our end.
    signal(SIGPIPE, SIG_IGN)
    if board != nil { startThread(named: "count") { [sources] in sources.count() } }
    let ending = await withCheckedContinuation { continuation in
      state.withLock { $0.continuation = continuation }
      if let lines { startList(lines) } else { startAnother() }
      // Interrupted before it began, it has no thread that would.
      settle()
    }
    board?.close(cancelled: lines?.unended)
    return ending
  }

  /// Begins nothing more, cancels the jobs under way on a service elsewhere, and ends ``run()``.
  public func interrupt() { end(.interrupted) }

  /// Shows lines above the bars, where there are any.
  /// - Returns: whether there are.
  public func show(_ lines: String) -> Bool { board?.show(lines) ?? false }

  /// Puts right what a terminal must not be left with, for a process that ends at once.
  public func leaveTerminal() {
    if board != nil { try? Descriptor.write(Screen.cursor, to: STDERR_FILENO) }
  }
}

// The threads.
extension Run {
  /// Starts another thread that carries jobs, where there may be one more.
  func startAnother() {
    let slot = state.withLock { state -> Int? in
      guard state.started < settings.parallel, state.ending == nil else { return nil }
      state.started += 1
      state.threads += 1
      return state.started
    }
    guard let slot else { return }
    startThread(named: "get \(slot)") { [self] in
      if let lines { save(lines) } else { work(slot) }
      endThread()
    }
  }

  /// Starts one beside those.
  /// - Parameter isBusy: whether the run's end waits for it in any case.
  func startCounted(
    named name: String, isBusy: Bool = false, _ body: @escaping @Sendable () -> Void
  ) {
    state.withLock { state in
      state.threads += 1
      if isBusy { state.busy += 1 }
    }
    startThread(named: name) { [self] in
      body()
      if isBusy { state.withLock { $0.busy -= 1 } }
      endThread()
    }
  }

  private func endThread() {
    state.withLock { $0.threads -= 1 }
    settle()
  }

  /// One thread's way to the service; nil where the run has ended for want of it.
  func makeDownload(
    _ watcher: ((JobLine.Phase, JobAnswer.Progress?) -> Void)? = nil
  ) -> Download? {
    let download = Download(
      to: settings.address, options: settings.options, output: settings.output,
      format: settings.impliedFormat, naming: naming, stop: stop, watcher: watcher)
    if download == nil { end(.fault("libcurl can't be used")) }
    return download
  }

  /// Does what the run's end waits for.
  func busily(_ body: () -> Void) {
    state.withLock { $0.busy += 1 }
    body()
    state.withLock { $0.busy -= 1 }
    settle()
  }

  private func work(_ slot: Int) {
    guard let download = makeDownload(board.map { board in { board.show(slot, $0, $1) } }) else {
      return
    }
    do throws(EndOfRun) {
      // The one in this process is there, and is nobody else's.
      if slot == 1, !settings.address.isOurs { try download.ping() }
    } catch {
      return end(Ending(error))
    }
    while let item = next() {
      startAnother()
      carry(item, by: download, slot)
      state.withLock { $0.busy -= 1 }
      settle()
    }
  }

  private func next() -> Sources.Item? {
    let item: Sources.Item?
    do { item = try sources.next() } catch {
      end(.mistake(error.text))
      return nil
    }
    guard let item else { return nil }
    return state.withLock { state in
      guard state.ending == nil else { return nil }
      state.busy += 1
      return item
    }
  }

  private func carry(_ item: Sources.Item, by download: Download, _ slot: Int) {
    switch item.line {
    case .unusable(let beginning, let reason):
      finish(slot, .failed(code: "invalid_url", detail: reason), url: beginning)
    case .text(let url):
      board?.begin(slot, name: FileName.shown(of: url))
      do throws(EndOfRun) {
        finish(slot, try download.carry(url, index: item.index), url: url)
      } catch {
        board?.drop(slot)
        end(Ending(error))
      }
    }
  }

  /// Tells what became of a URL.
  func finish(_ slot: Int, _ outcome: Outcome, url: String) {
    state.withLock {
      if case .failed = outcome { $0.failed += 1 }
    }
    board?.end(slot, outcome, url: url)
    do { try printer.print(outcome, url: url) } catch {
      end(error.code == EPIPE ? .outputClosed : .mistake("standard output: \(error.text)"))
    }
  }

  /// Ends the run; the first ending counts.
  func end(_ ending: Ending) {
    let isFirst = state.withLock { state in
      defer { if state.ending == nil { state.ending = ending } }
      return state.ending == nil
    }
    guard isFirst else { return }
    stop.raise()
    settle()
    startThread(named: "deadline") { [self] in
      // Who still waits for a service by then waits for one that is gone.
      sleep(10)
      settle(isLate: true)
    }
  }

  /// Ends the run once nothing is under way. A thread that waits for the list's next line may stay behind.
  private func settle(isLate: Bool = false) {
    let told = state.withLock { state -> (CheckedContinuation<Ending, Never>, Ending)? in
      let isThrough = state.threads == 0 || (state.ending != nil && state.busy == 0) || isLate
      guard isThrough, let continuation = state.continuation.take() else { return nil }
      return (continuation, state.ending ?? .complete(failed: state.failed))
    }
    if let (continuation, ending) = told { continuation.resume(returning: ending) }
  }
}

extension Run.Settings {
  /// The format that names of files ask for, where nothing else does.
  fileprivate var impliedFormat: ImageOptions.Format? { output.format ?? template?.format }
}

extension Run.Ending {
  init(_ end: EndOfRun) {
    switch end {
    case .usage(let text): self = .usage(text)
    case .mistake(let text): self = .mistake(text)
    case .outputClosed: self = .outputClosed
    case .stopped: self = .interrupted
    }
  }
}
