internal import Executors
internal import Glibc
internal import Synchronization

// Client: the command `imagefetch get`, a client of the HTTP API that saves images to files.
//
// Input: URLs from arguments and lists, and the address of a service. Output: image files, a line per URL for
// programs, and a progress display for people. Read the files in this order:
//
// 1. `Run` (this file): starts the threads, collects outcomes and ends the run.
// 2. `URLList`, `URLLineReader`: read the URLs. `Naming`, `NameTemplate`, `FileName`: name the files.
// 3. `Download`: carries one URL from its job's submission to its file. `ServiceConnection` sends its requests
//    with libcurl.
// 4. `List/`: sends lists as batches to a remote service.
// 5. `Output`, `PartialFile`: save images. `Printer`, `ProgressDisplay`: show outcomes.
//
// Each thread runs one job at a time and blocks while it waits. Threads share only state behind locks.

/// Downloads URLs through a service, a limited number at a time. Memory holds only the URLs in progress.
///
/// Each thread carries one URL at a time from its submission to its file. There are never more threads than
/// URLs.
package final class Run: Sendable {
  /// What to fetch, through which service, and where to save it.
  package struct Settings: Sendable {
    package var address: ServiceAddress
    /// The sources of URLs, in the order in which they are used.
    var sources: [Source]
    var output: Output
    /// How files in a folder are named. Nil: by the last part of the URL's path.
    package var template: NameTemplate?
    /// Whether a URL is skipped if its file exists in the folder.
    package var skipsExisting = false
    var options: ImageOptions
    /// The number of jobs that run at once.
    var parallel: Int
    /// Whether only failures are printed.
    package var isQuiet: Bool
    /// Whether outcomes are printed as JSON.
    package var isJSON = false
    /// The environment variables. `TERM`, `NO_COLOR` and the locale are used.
    var environment: [String: String]

    package init(
      address: ServiceAddress, sources: [Source], output: Output,
      options: ImageOptions = ImageOptions(),
      parallel: Int = 32, isQuiet: Bool = false, environment: [String: String] = [:]
    ) {
      (self.address, self.sources, self.output) = (address, sources, output)
      (self.options, self.parallel, self.isQuiet) = (options, max(1, parallel), isQuiet)
      self.environment = environment
    }
  }

  /// A source of URLs.
  package enum Source: Sendable {
    case url(String)
    case list(URLList)
  }

  /// How the run ended.
  package enum Ending: Sendable, Equatable {
    /// Every URL was processed.
    case complete(failed: Int)
    /// The service rejects an option of the command line.
    case usage(String)
    /// The user or the operator must fix something; one line of text.
    case mistake(String)
    /// The program that reads the output has closed it.
    case outputClosed
    /// ``interrupt()`` was called.
    case interrupted
    /// An internal fault, for example of the system.
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
  let display: ProgressDisplay?
  private let printer: Printer
  /// The lines of lists that are sent to a remote service as batches. Nil if each URL is submitted as its own
  /// job.
  let lines: ListLines?
  let naming: Naming
  private let state = Mutex(State())

  /// Prepares a run. No request is sent yet.
  package init(_ settings: Settings) {
    self.settings = settings
    let sources = Sources(settings.sources)
    self.sources = sources
    let hasBars = Self.hasBars(settings)
    display =
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
    lines = hasList && !settings.address.isInProcess ? ListLines(stop: stop) : nil
  }

  private static func hasBars(_ settings: Settings) -> Bool {
    let term = settings.environment["TERM"] ?? ""
    // Bars would overwrite lines for programs on the same terminal.
    let isShown = settings.isJSON && isatty(STDOUT_FILENO) == 1
    return isatty(STDERR_FILENO) == 1 && !settings.isQuiet && !isShown && term != "dumb"
      && !term.isEmpty
  }

  /// Runs until all URLs are processed or the run ends early.
  package func run() async -> Ending {
    // If the reader of the output closes it, writing must fail instead of ending the process.
    signal(SIGPIPE, SIG_IGN)
    if display != nil { startThread(named: "count") { [sources] in sources.count() } }
    let ending = await withCheckedContinuation { continuation in
      state.withLock { $0.continuation = continuation }
      if let lines { startList(lines) } else { startAnother() }
      // If the run was interrupted before, no thread has been started that would end it.
      resumeIfFinished()
    }
    display?.close(cancelled: lines?.unended)
    return ending
  }

  /// Starts nothing more, cancels the running jobs at a remote service, and ends ``run()``.
  package func interrupt() { endRun(.interrupted) }

  /// Prints lines above the bars.
  /// - Returns: False if there is no progress display.
  package func show(_ lines: String) -> Bool { display?.show(lines) ?? false }

  /// Makes the terminal's cursor visible again. For a process that ends at once.
  package func restoreCursor() {
    if display != nil { try? Descriptor.write(Screen.cursor, to: STDERR_FILENO) }
  }
}

// Threads.
extension Run {
  /// Starts another thread for jobs, unless `parallel` threads have been started.
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

  /// Starts a thread that is counted in addition to those.
  /// - Parameter isBusy: Whether the end of the run always waits for this thread.
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
    resumeIfFinished()
  }

  /// Creates a thread's download. On failure ends the run and returns nil.
  func makeDownload(
    _ watcher: ((JobLine.Phase, JobResponse.Progress?) -> Void)? = nil
  ) -> Download? {
    let download = Download(
      to: settings.address, options: settings.options, output: settings.output,
      format: settings.impliedFormat, naming: naming, stop: stop, watcher: watcher)
    if download == nil { endRun(.fault("libcurl could not be initialized")) }
    return download
  }

  /// Runs a task that the end of the run waits for.
  func whileBusy(_ body: () -> Void) {
    state.withLock { $0.busy += 1 }
    body()
    state.withLock { $0.busy -= 1 }
    resumeIfFinished()
  }

  private func work(_ slot: Int) {
    guard let download = makeDownload(display.map { board in { board.show(slot, $0, $1) } }) else {
      return
    }
    do throws(EndOfRun) {
      // A service in this process is known to be available.
      if slot == 1, !settings.address.isInProcess { try download.ping() }
    } catch {
      return endRun(Ending(error))
    }
    while let item = next() {
      startAnother()
      process(item, with: download, slot)
      state.withLock { $0.busy -= 1 }
      resumeIfFinished()
    }
  }

  private func next() -> Sources.Item? {
    let item: Sources.Item?
    do { item = try sources.next() } catch {
      endRun(.mistake(error.text))
      return nil
    }
    guard let item else { return nil }
    return state.withLock { state in
      guard state.ending == nil else { return nil }
      state.busy += 1
      return item
    }
  }

  private func process(_ item: Sources.Item, with download: Download, _ slot: Int) {
    switch item.line {
    case .unusable(let beginning, let reason):
      report(slot, .failed(code: "invalid_url", detail: reason), url: beginning)
    case .text(let url):
      display?.begin(slot, name: FileName.shown(of: url))
      do throws(EndOfRun) {
        report(slot, try download.download(url, index: item.index), url: url)
      } catch {
        display?.remove(slot)
        endRun(Ending(error))
      }
    }
  }

  /// Reports the outcome of a URL.
  func report(_ slot: Int, _ outcome: Outcome, url: String) {
    state.withLock {
      if case .failed = outcome { $0.failed += 1 }
    }
    display?.finish(slot, outcome, url: url)
    do { try printer.print(outcome, url: url) } catch {
      endRun(error.code == EPIPE ? .outputClosed : .mistake("standard output: \(error.text)"))
    }
  }

  /// Ends the run. Only the first ending counts.
  func endRun(_ ending: Ending) {
    let isFirst = state.withLock { state in
      defer { if state.ending == nil { state.ending = ending } }
      return state.ending == nil
    }
    guard isFirst else { return }
    stop.raise()
    resumeIfFinished()
    startThread(named: "deadline") { [self] in
      // A thread that still waits then waits for a service that no longer responds.
      sleep(10)
      resumeIfFinished(isLate: true)
    }
  }

  /// Returns from ``run()`` once nothing is in progress. A thread that waits for a list's next line may
  /// continue to wait.
  private func resumeIfFinished(isLate: Bool = false) {
    let told = state.withLock { state -> (CheckedContinuation<Ending, Never>, Ending)? in
      let isThrough = state.threads == 0 || (state.ending != nil && state.busy == 0) || isLate
      guard isThrough, let continuation = state.continuation.take() else { return nil }
      return (continuation, state.ending ?? .complete(failed: state.failed))
    }
    if let (continuation, ending) = told { continuation.resume(returning: ending) }
  }
}

extension Run.Settings {
  /// The format that the names of files imply.
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
