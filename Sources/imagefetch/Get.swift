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
      read from standard input where - stands, or where no URL is given.

      On a terminal each job has a bar. Otherwise each is a line on standard output once it is \
      through, fields between tabs: saved, path, URL, size; or failed, code, URL, reason.

      Exit status: 0 all images saved, 1 a mistake of the user's or operator's, 2 a usage error, \
      3 not every image could be had, 70 an internal fault, 130 interrupted: what runs is cancelled.
      """)

  @Argument(help: ArgumentHelp("What to fetch.", valueName: "url"))
  var urls: [String] = []

  @Option(
    name: [.short, .long],
    help: ArgumentHelp(
      "A file for one image, a folder, or - for standard output; the working directory by default.",
      discussion: """
        In a folder nothing is ever overwritten: where cat.jpg is taken it is cat-2.jpg. With a \
        slash at its end the folder is made. A file's ending (.jpg, .png, .webp, .avif) is the format.
        """,
      valueName: "file|dir"))
  var output: String?

  @OptionGroup(title: "Service")
  var service: ServiceOptions

  @OptionGroup(title: "Variants")
  var variant: VariantOptions

  @OptionGroup(title: "Jobs")
  var job: JobOptions

  @Flag(name: [.short, .long], help: "No bars, and lines for what failed only.")
  var quiet = false

  func validate() throws {
    if urls.isEmpty, isatty(STDIN_FILENO) == 1 {
      throw ValidationError("What shall be fetched? Name URLs, or give a list on standard input.")
    }
    if output == "-", isatty(STDOUT_FILENO) == 1 {
      throw ValidationError("Standard output is a terminal: send the image to a file or a program.")
    }
    guard urls.count(where: { $0 == "-" }) <= 1 else {
      throw ValidationError("The list on standard input can be read once.")
    }
  }

  func run() async throws {
    let urls = urls.isEmpty ? ["-"] : urls
    let output = try chosenOutput(isMany: urls.count > 1 || urls == ["-"])
    let run = { @Sendable [wishes = wishes, parallel = job.parallel, quiet] address in
      Run(
        Run.Settings(
          address: address, urls: urls, output: output, wishes: wishes, parallel: parallel,
          isQuiet: quiet, environment: ProcessInfo.processInfo.environment))
    }
    // Before there is anything that a signal must not leave behind.
    let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm, .sighup)
    if let address = try service.address() {
      return try await Self.finish(run(address), signals)
    }
    try await Self.runHere(try service.configuration(), run, signals)
  }

  private var wishes: Wishes {
    var wishes = job.wishes
    variant.add(to: &wishes)
    return wishes
  }

  private func chosenOutput(isMany: Bool) throws -> Output {
    do throws(Output.Mistake) { return try Output(output, isMany: isMany) } catch {
      switch error {
      case .oneOnly(let path):
        throw UsageMistake(line: "--output: \"\(path)\" has room for one image, not for a list")
      case .unusable(let text): throw OperatorMistakes(lines: [text])
      }
    }
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
    let ending = await run.run()
    interrupter.cancel()
    switch ending {
    case .complete(_, failed: 0): return
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
    case .internalFault(let message): InternalFault(description: message)
    }
  }
}
