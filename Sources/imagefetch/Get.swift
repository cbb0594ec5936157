internal import App
internal import ArgumentParser
internal import Client
internal import Foundation
internal import Glibc
internal import UnixSignals

/// `imagefetch get`
struct Get: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Fetches images and saves them.",
    discussion: """
      Without --server the command runs a service in its own process, with the configuration and \
      environment that serve would use. With --server it uses a running service.

      A list of URLs, one per line, is read from --input. It is read from standard input if - is \
      given, or if neither URLs nor --input are given. With --server a list becomes a batch, which \
      continues after interrupted connections and restarts.

      On a terminal each job has a progress bar. Otherwise each finished job is one line on \
      standard output, with fields between tabs: saved, path, URL, size; or skipped, path, URL, \
      reason; or failed, code, URL, reason. --json prints objects.

      Exit status: 0 all images were saved, 1 a mistake in the configuration or in a file, 2 a \
      usage error, 3 some images could not be fetched, 70 an internal fault, 130 interrupted: \
      running jobs are cancelled.
      """)

  @Argument(help: ArgumentHelp("The URL of an image; - reads a list.", valueName: "url"))
  var urls: [String] = []

  @Option(
    name: [.short, .long],
    help: ArgumentHelp("A list of URLs, one per line; - for standard input.", valueName: "file"))
  var input: String?

  @OptionGroup(title: "Output")
  var output: OutputOptions

  @OptionGroup(title: "Service")
  var service: ServiceOptions

  @OptionGroup(title: "Variants")
  var variant: VariantOptions

  @OptionGroup(title: "Jobs")
  var job: JobOptions

  func validate() throws {
    if urls.isEmpty, input == nil, isatty(STDIN_FILENO) == 1 {
      throw ValidationError("There is nothing to fetch. Give URLs, or a list with --input FILE.")
    }
    guard (urls + [input].compactMap(\.self)).count(where: { $0 == "-" }) <= 1 else {
      throw ValidationError("Standard input (-) can be given only once.")
    }
  }

  func run() async throws {
    let sources = try sources()
    let isMany =
      sources.count > 1 || sources.contains { if case .list = $0 { true } else { false } }
    let folder = try output.output(isMany: isMany)
    let run = { @Sendable [options = options, parallel = job.parallel, output] address in
      var settings = Run.Settings(
        address: address, sources: sources, output: folder, options: options, parallel: parallel,
        environment: ProcessInfo.processInfo.environment)
      output.add(to: &settings)
      return Run(settings)
    }
    // Signals are handled before anything exists that must be cleaned up.
    let signals = await UnixSignalsSequence(trapping: Self.trapped)
    if let address = try service.address() {
      return try await Self.finish(run(address), signals)
    }
    try await Self.runHere(try service.configuration(), run, signals)
  }

  /// The signals to handle, except those that are ignored since the start, as with nohup or a shell's `&`.
  private static var trapped: [UnixSignal] {
    [(UnixSignal.sigint, SIGINT), (.sigterm, SIGTERM), (.sighup, SIGHUP)]
      .filter { !isIgnored($0.1) }.map(\.0)
  }

  /// The URLs of the arguments, then the list. Standard input if there is neither.
  private func sources() throws -> [Run.Source] {
    let lists = input.map { [$0] } ?? (urls.isEmpty ? ["-"] : [])
    do throws(URLList.Mistake) {
      var sources: [Run.Source] = []
      for url in urls { sources.append(url == "-" ? .list(try URLList(url)) : .url(url)) }
      for list in lists { sources.append(.list(try URLList(list))) }
      return sources
    } catch {
      throw OperatorMistakes(lines: [error.text])
    }
  }

  private var options: ImageOptions {
    var options = job.options
    variant.add(to: &options)
    return options
  }

  /// Runs the command with a service in this process.
  private static func runHere(
    _ configuration: App.Configuration, _ run: @escaping @Sendable (ServiceAddress) -> Run,
    _ signals: UnixSignalsSequence
  ) async throws {
    let result: Result<Void, any Error>
    do throws(StartError) {
      result = try await LocalService.run(configuration) { place in
        guard let address = ServiceAddress(place.address, token: place.token, isOurs: true) else {
          return .failure(InternalFault(description: "\(place.address) is not an address"))
        }
        do { return .success(try await finish(run(address), signals)) } catch {
          return .failure(error)
        }
      }
    } catch {
      throw error.commandError
    }
    try result.get()
  }

  /// Runs until all jobs are finished or a signal arrives. Throws the error for the exit status.
  private static func finish(_ run: Run, _ signals: UnixSignalsSequence) async throws {
    let interrupter = Task { await handleSignals(signals, run) }
    // Otherwise the log of the service in this process would be printed between the bars.
    StandardError.show(by: { run.show($0) })
    let ending = await run.run()
    StandardError.show(by: nil)
    interrupter.cancel()
    switch ending {
    case .complete(failed: 0): return
    case .complete: throw CommandEnded(status: .imagesMissing)
    case .usage(let text): throw UsageMistake(line: text)
    case .mistake(let text): throw OperatorMistakes(lines: [text])
    case .outputClosed: throw CommandEnded(status: .brokenPipe)
    case .interrupted: throw CommandEnded(status: await interrupter.value ?? .interrupt)
    case .fault(let text): throw InternalFault(description: text)
    }
  }

  /// - Returns: the exit status for the first signal; nil if the task was cancelled before one.
  private static func handleSignals(_ signals: UnixSignalsSequence, _ run: Run) async -> ExitStatus?
  {
    var signals = signals.makeAsyncIterator()
    guard let first = await signals.next() else { return nil }
    let status: ExitStatus =
      switch first {
      case .sigterm: .termination
      case .sighup: .hangup
      default: .interrupt
      }
    run.interrupt()
    // A second signal ends the process at once.
    Task {
      if await signals.next() != nil {
        run.restoreCursor()
        StandardError.flushBriefly()
        _exit(status.rawValue)
      }
    }
    return status
  }
}

extension StartError {
  /// The error in the form that ``EntryPoint`` reports.
  var commandError: any Error {
    switch self {
    case .operatorMistake(let message): OperatorMistakes(lines: [message])
    case .unusableStore(let message): UnusableStore(line: message)
    case .internalFault(let message): InternalFault(description: message)
    }
  }
}

/// Whether the process ignores a signal.
private func isIgnored(_ number: Int32) -> Bool {
  var action = sigaction()
  guard sigaction(number, nil, &action) == 0 else { return false }
  return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self)
    == unsafeBitCast(SIG_IGN, to: Int.self)
}
