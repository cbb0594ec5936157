internal import App
internal import ArgumentParser

/// The root command. Each subcommand has a file of its own.
struct Imagefetch: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "imagefetch",
    abstract: "Fetches images from anywhere as durable jobs, and serves them.",
    discussion: """
      Exit status: 0 success, 1 a mistake in the configuration (one line each on standard error), \
      2 a usage error, 3 get could not fetch some images, 4 migrate --check found outdated tables, \
      70 an internal fault, or a store that can't be used.
      """,
    version: App.buildVersion,
    subcommands: [
      Serve.self, Get.self, Sign.self, Check.self, Migrate.self, Health.self, Version.self,
    ])
}
