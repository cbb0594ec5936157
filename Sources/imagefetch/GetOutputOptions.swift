internal import ArgumentParser
internal import Client
internal import Foundation

/// The options for files and for the lines on standard output.
struct OutputOptions: ParsableArguments {
  @Option(
    name: [.short, .long],
    help: ArgumentHelp(
      "A file for one image, a folder, or - for standard output; by default the working directory.",
      discussion: """
        Files in a folder are never overwritten: if cat.jpg exists, the image is saved as cat-2.jpg. A \
        name with a final slash (photos/) is a folder, which is created if needed. Any other new name is a \
        file. The extension of a file (.jpg, .png, .webp, .avif) selects the format.
        """,
      valueName: "file|dir"))
  var output: String?

  @Option(
    help: ArgumentHelp(
      "The names of files in the folder, such as {host}/{path}/{name}.{ext}.",
      discussion: """
        {host}, {path} and {name} come from the URL. {ext} is the extension for the image's format, {index} \
        counts the URLs, {digest} is a digest of the URL and the variant. Folders are created as needed. No \
        URL leads out of the folder at --output.
        """,
      valueName: "template"),
    transform: { text in
      do throws(NameTemplate.Mistake) { return try NameTemplate(text) } catch {
        throw ValidationError(error.text)
      }
    })
  var outputTemplate: NameTemplate?

  @Flag(
    help: ArgumentHelp(
      "Skip each URL that was fetched into this folder before.",
      discussion: """
        Each name has a digest of the URL and the variant: cat-2f1a09c3d4e5b687.jpg. Files that were saved \
        without this flag are not found, unless --output-template has {digest}.
        """))
  var skipExisting = false

  @Flag(help: "Print lines as JSON: url, state, path, bytes, width, height, format, error.")
  var json = false

  @Flag(name: [.short, .long], help: "No progress bars, and lines for failed jobs only.")
  var quiet = false

  func validate() throws {
    guard output == "-" else { return }
    if isatty(STDOUT_FILENO) == 1 {
      throw ValidationError("Standard output is a terminal. Redirect it to a file or a program.")
    }
    if skipExisting { throw ValidationError(Self.skippingNeedsFolder) }
  }

  private static let skippingNeedsFolder =
    "--skip-existing needs a folder. Give one with --output."

  /// - Parameter isMany: whether there may be several images.
  func output(isMany: Bool) throws -> Output {
    let chosen: Output
    do throws(Output.Mistake) { chosen = try Output(output, isMany: isMany) } catch {
      switch error {
      case .oneOnly(let path):
        throw UsageMistake(
          line:
            "--output: \"\(path)\" is a file, which can hold only one image; add a final slash for a folder"
        )
      case .unusable(let text): throw OperatorMistakes(lines: [text])
      }
    }
    guard case .folder = chosen else {
      if skipExisting { throw UsageMistake(line: Self.skippingNeedsFolder) }
      if outputTemplate == nil { return chosen }
      throw UsageMistake(
        line: "--output-template needs a folder, but \"\(output ?? "")\" is not one")
    }
    return chosen
  }

  func add(to settings: inout Run.Settings) {
    (settings.template, settings.skipsExisting) = (outputTemplate, skipExisting)
    (settings.isQuiet, settings.isJSON) = (quiet, json)
  }
}
