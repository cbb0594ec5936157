internal import App
internal import ArgumentParser
internal import Foundation
internal import Isolation

/// Parses the command line, runs it and turns what came of it into an exit status.
@main
enum EntryPoint {
  static func main() async {
    // Forks: nothing may have started a thread.
    if CommandLine.arguments.dropFirst().first == DecoderServer.argument { DecoderServer.run() }
    Allocator.configure()
    StandardError.fillStandardDescriptors()
    defer { StandardError.flush() }
    do {
      var command = try Imagefetch.parseAsRoot()
      if var command = command as? any AsyncParsableCommand {
        // From the next line on Swift's threads are needed.
        if let hindrance = Service.hindrance { throw InternalFault(description: hindrance) }
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

  /// Tells people about an error: help and the like on standard output, faults on standard error.
  private static func report(_ error: any Error) -> ExitStatus {
    switch error {
    case let ended as Ended: return ended.status
    case let mistake as UsageMistake:
      tell(mistake.line)
      return .usageError
    case let mistakes as OperatorMistakes:
      for line in mistakes.lines { tell(line) }
      return .operatorMistake
    case let store as UnusableStore:
      tell(store.line)
      return .internalFault
    case let fault as InternalFault:
      tell("imagefetch: internal fault: \(fault.description)")
      return .internalFault
    default:
      let message = Imagefetch.fullMessage(for: error)
      switch Imagefetch.exitCode(for: error) {
      case .success:
        print(message)
        return .fine
      case .validationFailure:
        tell(message + suggestion)
        return .usageError
      default:
        tell("imagefetch: internal fault: \(message)")
        return .internalFault
      }
    }
  }

  /// What somebody may have meant whose first word is no command; empty where nothing is near.
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

  /// Names that other programs give to such commands.
  private static let synonyms = [
    "fetch": "get", "download": "get", "pull": "get", "load": "get", "save": "get", "curl": "get",
    "wget": "get", "start": "serve", "run": "serve", "server": "serve", "daemon": "serve",
    "validate": "check", "config": "check", "lint": "check", "ping": "health", "status": "health",
    "healthcheck": "health", "upgrade": "migrate",
  ]

  static func tell(_ line: String) {
    StandardError.tell(line)
  }
}
