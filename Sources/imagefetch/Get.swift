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
      By a service that runs in this process for as long, under the rules that the configuration \
      and the environment set for serve, or by the one at --server. A list of URLs, one a line, is \
      read from --input, and from standard input where - stands, or where no URL is given; at \
      --server it is a batch, which goes on over cut connections and restarts.

      On a terminal each job has a bar. Otherwise each is a line on standard output once it is \
      through, fields between tabs: saved, path, URL, size; skipped, path, URL, why; or failed, \
      code, URL, reason. --json has them as objects.

      Exit status: 0 all images saved, 1 a mistake of the user's or operator's, 2 a usage error, \
      3 not every image could be had, 70 an internal fault, 130 interrupted: what runs is cancelled.
      """)

  @Argument(help: ArgumentHelp("What to fetch.", valueName: "url"))
  var urls: [String] = []

  @Option(
    name: [.short, .long],
    help: ArgumentHelp("A list of URLs, one a line; - for standard input.", valueName: "file"))
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
      throw ValidationError("What shall be fetched? Name URLs, or a list of them: --input FILE.")
    }
    guard (urls + [input].compactMap(\.self)).count(where: { $0 == "-" }) <= 1 else {
      throw ValidationError("The list on standard input can be read once.")
    }
  }

  func run() async throws {
    let sources = try sources()
    let isMany =
      sources.count > 1 || sources.contains { if case .list = $0 { true } else { false } }
    let folder = try output.chosen(isMany: isMany)
    let run = { @Sendable [options = options, parallel = job.parallel, output] address in
      var settings = Run.Settings(
        address: address, sources: sources, output: folder, options: options, parallel: parallel,
        environment: ProcessInfo.processInfo.environment)
      output.add(to: &settings)
      return Run(settings)
    }
    // Before there is anything that a signal must not leave behind.
    let signals = await UnixSignalsSequence(trapping: Self.trapped)
    if let address = try service.address() {
      return try await Self.finish(run(address), signals)
    }
    try await Self.runHere(try service.configuration(), run, signals)
  }

  /// But for those that whoever started it has it ignore, as nohup and a shell's & do.
  private static var trapped: [UnixSignal] {
    [(UnixSignal.sigint, SIGINT), (.sigterm, SIGTERM), (.sighup, SIGHUP)]
      .filter { !isIgnored($0.1) }.map(\.0)
  }

  /// Arguments, then the list; standard input where there is neither.
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

  /// With the service in this process.
  private static func runHere(
    _ configuration: App.Configuration, _ run: @escaping @Sendable (ServiceAddress) -> Run,
    _ signals: UnixSignalsSequence
  ) async throws {
    let result: Result<Void, any Error>
    do throws(StartError) {
      result = try await LocalService.run(configuration) { place in
        guard let address = ServiceAddress(place.address, token: place.token, isOurs: true) else {
          return .failure(InternalFault(description: "\(place.address) is no address"))
        }
        do { return .success(try await finish(run(address), signals)) } catch {
          return .failure(error)
        }
      }
    } catch {
      throw error.told
    }
    try result.get()
  }

  /// Runs it until it is through or a signal ends it, and turns what came of it into what the process ends with.
  private static func finish(_ run: Run, _ signals: UnixSignalsSequence) async throws {
    let interrupter = Task { await obey(signals, run) }
    // What the service in this process logs would else stand between the bars.
    StandardError.show(by: { run.show($0) })
    let ending = await run.run()
    StandardError.show(by: nil)
    interrupter.cancel()
    switch ending {
    case .complete(failed: 0): return
    case .complete: throw Ended(status: .imagesMissing)
    case .usage(let text): throw UsageMistake(line: text)
    case .mistake(let text): throw OperatorMistakes(lines: [text])
    case .outputClosed: throw Ended(status: .brokenPipe)
    case .interrupted: throw Ended(status: await interrupter.value ?? .interrupt)
    case .fault(let text): throw InternalFault(description: text)
    }
  }

  /// - Returns: what the first signal makes the exit status; nil where there was none.
  private static func obey(_ signals: UnixSignalsSequence, _ run: Run) async -> ExitStatus? {
    var signals = signals.makeAsyncIterator()
    guard let first = await signals.next() else { return nil }
    let status: ExitStatus =
      switch first {
      case .sigterm: .termination
      case .sighup: .hangup
      default: .interrupt
      }
    run.interrupt()
    // A second one, for as long as the process may yet live.
    Task {
      if await signals.next() != nil {
        run.leaveTerminal()
        StandardError.flushBriefly()
        _exit(status.rawValue)
      }
    }
    return status
  }
}

extension StartError {
  /// As this command's.
  var told: any Error {
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
