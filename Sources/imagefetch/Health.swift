internal import App
internal import ArgumentParser
internal import Foundation

/// `imagefetch health`: the health check of containers, whose image has neither a shell nor curl.
struct Health: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Checks whether the service on this machine responds: exit status 0 or 1.",
    discussion: "Requests /livez at the address in the configuration.")

  @Option(help: ArgumentHelp("The configuration file.", valueName: "file"))
  var config: String?

  func run() async throws {
    // The probe needs no tokens, and their file may be readable by serve only.
    let open = Configuration.Flag(name: "health", key: "auth.disabled", value: "true")
    let configuration = try loadConfiguration(from: config, flags: [open])
    do throws(Probe.Failure) {
      try Probe.check("/livez", of: configuration)
    } catch {
      throw OperatorMistakes(lines: [error.description])
    }
  }
}
