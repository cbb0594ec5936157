internal import App
internal import ArgumentParser

/// The command; each subcommand stands in a file of its own.
struct Imagefetch: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "imagefetch",
    abstract: "Fetches images from anywhere as durable jobs, and serves them.",
    discussion: """
      Exit status: 0 fine, 1 a mistake of the operator's (one line each on standard error), \
      2 a usage error, 3 images that get could not have, 4 tables that migrate --check found out of date, \
      70 an internal fault, or a store that can't be used.
      """,
    version: App.buildVersion,
    subcommands: [
      Serve.self, Get.self, Sign.self, Check.self, Migrate.self, Health.self, Version.self,
    ])
}
