// Compiles every .ksy file of this directory into Java: node generate.js SOURCE_DIRECTORY
const fs = require("fs");
const path = require("path");
const compiler = require("kaitai-struct-compiler");
const yaml = require("js-yaml");

const from = process.argv[2];
const grammars = fs.readdirSync(from).filter((name) => name.endsWith(".ksy"));
Promise.all(
  grammars.map(async (name) => {
    const grammar = yaml.load(fs.readFileSync(path.join(from, name), "utf8"));
    const files = await compiler.compile("java", grammar, null, false);
    for (const [file, text] of Object.entries(files)) {
      fs.writeFileSync(path.basename(file), text);
    }
  }),
).catch((error) => {
  console.error(error);
  process.exit(1);
});
