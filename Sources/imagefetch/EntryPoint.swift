internal import App
internal import ArgumentParser
internal import Foundation
internal import Isolation

/// The executable: parses the command line, runs the subcommand and exits with a status.
///
/// Input: arguments and the environment. Output: texts on standard output, errors on standard error, and an ``ExitStatus``.
///
/// Reading order: this file, `Imagefetch` (the list of subcommands), then one file per subcommand. `Serve` runs the service;
/// `Get` is the command-line client, and `GetOptions` and `GetOutputOptions` have its options.
///
/// The main thread starts without other threads, because decoder processes are forked from it. Subcommands that suspend
/// run on Swift's shared threads.
@main
enum EntryPoint {
  static func main() async {
    // The decoder server forks, so it must run before anything starts a thread.
    if CommandLine.arguments.dropFirst().first == DecoderServer.argument { DecoderServer.run() }
    Allocator.configure()
    StandardError.fillStandardDescriptors()
    defer { StandardError.flush() }
    do {
      var command = try Imagefetch.parseAsRoot()
      if var command = command as? any AsyncParsableCommand {
        // The next line needs Swift's threads, so the limits are checked first.
        if let hindrance = Service.startProblem { throw InternalFault(description: hindrance) }
        try await command.run()
      } else {
        try command.run()
      }
    } catch {
      let status = report(error)
      StandardError.flush()
      exit(status.rawValue)
    }
  }

  /// Prints an error and returns its exit status. Help goes to standard output, errors to standard error.
  private static func report(_ error: any Error) -> ExitStatus {
    switch error {
    case let ended as CommandEnded: return ended.status
    case let mistake as UsageMistake:
      printError(mistake.line)
      return .usageError
    case let mistakes as OperatorMistakes:
      for line in mistakes.lines { printError(line) }
      return .operatorMistake
    case let store as UnusableStore:
      printError(store.line)
      return .internalFault
    case let fault as InternalFault:
      printError("imagefetch: internal fault: \(fault.description)")
      return .internalFault
    default:
      let message = Imagefetch.fullMessage(for: error)
      switch Imagefetch.exitCode(for: error) {
      case .success:
        print(message)
        return .fine
      case .validationFailure:
        printError(message + suggestion)
        return .usageError
      default:
        printError("imagefetch: internal fault: \(message)")
        return .internalFault
      }
    }
  }

  /// A hint if the first argument is a misspelled command or a URL; else empty.
  private static var suggestion: String {
    let commands = Imagefetch.configuration.subcommands.map { $0._commandName }
    guard CommandLine.arguments.count > 1 else { return "" }
    let word = CommandLine.arguments[1]
    guard !word.hasPrefix("-"), !commands.contains(word), word != "help" else { return "" }
    let isAddress = word.contains("/") || word.contains(".")
    guard
      let meant = isAddress
        ? "get \(word)" : synonyms[word] ?? suggestedName(for: word, among: commands)
    else { return "" }
    return "\nDid you mean imagefetch \(meant)?"
  }

  /// Names of such commands in other programs.
  private static let synonyms = [
    "fetch": "get", "download": "get", "pull": "get", "load": "get", "save": "get", "curl": "get",
    "wget": "get", "start": "serve", "run": "serve", "server": "serve", "daemon": "serve",
    "validate": "check", "config": "check", "lint": "check", "ping": "health", "status": "health",
    "healthcheck": "health", "upgrade": "migrate",
  ]

  static func printError(_ line: String) {
    StandardError.printLine(line)
  }
}
