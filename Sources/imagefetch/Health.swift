internal import App
internal import ArgumentParser
internal import Foundation

/// `imagefetch health`: for a container whose image has neither a shell nor curl.
struct Health: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Asks the service on this machine whether it lives: exit status 0 or 1.",
    discussion: "The configuration says where it listens, as it does for serve.")

  @Option(help: ArgumentHelp("The configuration.", valueName: "file"))
  var config: String?

  func run() async throws {
    // Who may ask is no matter of the probe's: the tokens may stand in a file that only serve is told of.
    let open = Configuration.Flag(name: "health", key: "auth.disabled", value: "true")
    let server = try loaded(from: config, flags: [open]).server
    do throws(Probe.Failure) {
      try Probe.ask("/livez", of: server)
    } catch {
      throw OperatorMistakes(lines: [error.description])
    }
  }
}
